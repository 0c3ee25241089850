/* Diagnostics as one JSON array; written by hand since file texts may not be UTF-8. */
#include "diag.h"

static void put_escaped(Text *out, unsigned char c)
{
    if (c == '"' || c == '\\')
        text_printf(out, "\\%c", c);
    else if (c == '\n')
        text_add(out, STR("\\n"));
    else if (c < 0x20 || c == 0x7f)
        text_printf(out, "\\u%04x", c);
    else
        text_printf(out, "%c", c);
}

static void put_string(Text *out, Str s)
{
    text_add(out, STR("\""));
    for (int i = 0; i < s.n;) {
        int n = utf8_length(s.s + i, s.n - i);
        if (n == 0)
            text_add(out, STR("\\ufffd"));
        else if (n == 1)
            put_escaped(out, (unsigned char)s.s[i]);
        else
            text_add(out, (Str){s.s + i, n});
        i += n ? n : 1;
    }
    text_add(out, STR("\""));
}

static void put_place(const Diags *diags, Span span, Text *out)
{
    const SourceFile *file = &diags->sources->files.v[span.file];
    int line, column, end_line, end_column;
    source_position(file, span.lo, &line, &column);
    source_position(file, span.hi, &end_line, &end_column);
    text_add(out, STR("\"file\": "));
    put_string(out, file->name);
    text_printf(out, ", \"line\": %d, \"column\": %d, \"end_line\": %d, \"end_column\": %d", line,
                column, end_line, end_column);
}

static void put_labels(const Diags *diags, const Diag *diag, Text *out)
{
    text_add(out, STR(", \"labels\": ["));
    for (int i = 0; i < diag->labels.n; i++) {
        text_add(out, i ? STR(", {") : STR("{"));
        put_place(diags, diag->labels.v[i].span, out);
        text_add(out, STR(", \"message\": "));
        put_string(out, diag->labels.v[i].text);
        text_add(out, STR("}"));
    }
    text_add(out, STR("], \"notes\": ["));
    for (int i = 0; i < diag->notes.n; i++) {
        text_add(out, i ? STR(", ") : STR(""));
        put_string(out, diag->notes.v[i]);
    }
    text_add(out, STR("]"));
}

static void put_diag(const Diags *diags, const Diag *diag, Text *out)
{
    text_printf(out, "{\"code\": \"%.*s\", \"severity\": \"%s\", \"clause\": \"%s\", \"message\": ",
                STR_FMT(diag_code(diags->arena, diag->id)),
                diag->severity == SEV_ERROR ? "error" : "warning", diag_clause(diag->id));
    put_string(out, diag->message);
    if (diag->span.hi) {
        text_add(out, STR(", "));
        put_place(diags, diag->span, out);
    }
    put_labels(diags, diag, out);
    if (diag->fix_span.hi) {
        text_add(out, STR(", \"fix\": {"));
        put_place(diags, diag->fix_span, out);
        text_add(out, STR(", \"text\": "));
        put_string(out, diag->fix_text);
        text_add(out, STR("}"));
    }
    text_add(out, STR("}"));
}

void diags_render_json(const Diags *diags, Text *out)
{
    const Diag **list = arena_array(diags->arena, const Diag *, diags->list.n + 1);
    int n = diags_sorted(diags, list);
    text_add(out, STR("["));
    for (int i = 0; i < n; i++) {
        text_add(out, i ? STR(",\n ") : STR(""));
        put_diag(diags, list[i], out);
    }
    text_add(out, STR("]\n"));
}
