/* Tokens as the parser gets them, and what it says when they do not fit. After an error tokens are
 * skipped up to a `;` or `}` of the same block, or to the keyword of the next item, so that each
 * fault is told once and none hides another. */
#include "parse_impl.h"

#include "isoc_parse.h"

#include <string.h>

/* ---- the shape of what was read: braces and items -------------------------------------------- */

/* `op` inside a layout starts an override. */
static bool starts_item(const Parse *parse, int token)
{
    switch (token) {
    case CONTRACT: case NUMERICS: case INCLUDE: case PARAM:
    case AXIS: case TREE: case LAYOUT: case SCHEDULE: case MODEL:
        return true;
    case OP:
        return !(parse->item == LAYOUT && parse->block_count > 0);
    default:
        return false;
    }
}

static void open_brace(Parse *parse, Span span)
{
    bool block = !parse->tree_pending;
    parse->tree_pending = false;
    parse->braces[parse->brace_count++] = (Brace){block, span};
    parse->block_count += block;
}

static void close_brace(Parse *parse)
{
    if (parse->brace_count == 0)
        return;
    bool block = parse->braces[--parse->brace_count].block;
    parse->block_count -= block;
    parse->last_closes = block;
}

/* No tree goes beyond its statement, whatever is missing in it. */
static void end_statement(Parse *parse)
{
    parse->tree_pending = false;
    parse->paren_count = 0;
    while (parse->brace_count > 0 && !parse->braces[parse->brace_count - 1].block)
        parse->brace_count--;
}

static void follow(Parse *parse, int token, Span span)
{
    int last = parse->last;
    parse->blocks_before = parse->block_count;
    parse->last_closes = false;
    if (token == '(')
        parse->in_axes = last == SUM || last == MAX || last == LOGSUMEXP;
    else if (token == BY || token == ')' || token == ';')
        parse->in_axes = false;
    if (starts_item(parse, token) && parse->block_count == 0)
        parse->item = token;
    if (token == SPLIT || token == EVERY || token == LANES || token == ROUND)
        parse->tree_pending = true;
    else if (token == '{')
        open_brace(parse, span);
    else if (token == '}')
        close_brace(parse);
    else if (token == ';')
        end_statement(parse);
    else if (token == '(' || token == '[')
        parse->paren_count++;
    else if ((token == ')' || token == ']') && parse->paren_count > 0)
        parse->paren_count--;
}

/* A name follows what was scanned. */
static bool before_name(const Parse *parse)
{
    Str text = parse->sources->files.v[parse->file].text;
    bool comment = false;
    for (int at = parse->at; at < text.n; at++) {
        char c = text.s[at];
        comment = comment ? c != '\n' : c == '#';
        if (!comment && !strchr(" \t\f\r\n", c))
            return c == '_' || ((c | 32) >= 'a' && (c | 32) <= 'z');
    }
    return false;
}

/* `top` starts a statement, which then names what it sets. */
static bool starts_top(const Parse *parse, Str text)
{
    bool first = parse->last == '{' || parse->last == '}' || parse->last == ';';
    return parse->item == OP && parse->block_count == 1 && first && str_is(text, "top") &&
           before_name(parse);
}

/* Words that are reserved inside of some item's block alone, or where just they may stand: `of`
 * behind an axis's size, `at` behind a reduction's axes, `top` where it starts a statement. */
static int word_in_item(const Parse *parse, Str text)
{
    static const struct {
        int item, token;
        const char *word;
    } words[] = {
        {SCHEDULE, X, "x"},   {MODEL, INPUT, "input"},   {MODEL, TABLE, "table"},
        {MODEL, AS, "as"},    {MODEL, CACHE, "cache"},   {MODEL, REPEAT, "repeat"},
        {MODEL, OUTPUT, "output"},
    };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (parse->item == words[i].item && parse->block_count > 0 &&
            str_is(text, words[i].word))
            return words[i].token;
    if (starts_top(parse, text))
        return TOP;
    if (parse->item == AXIS && (parse->last == NUMBER || parse->last == ID) && str_is(text, "of"))
        return OF;
    return parse->in_axes && parse->last == ID && str_is(text, "at") ? AT : ID;
}

/* ---- the token source ------------------------------------------------------------------------ */

static int scan(Parse *parse, ISO_YYSTYPE *value, Span *span)
{
    span->hi = parse->at;
    int token = iso_yylex(value, span, parse->scanner);
    parse->at = span->hi;
    if (token == 0) /* what is missing there is missed behind the last token */
        *span = (Span){parse->file, parse->last_span.hi, parse->last_span.hi};
    return token == ID ? word_in_item(parse, value->name.text) : token;
}

/* The keyword of an item inside a block: the block's brace is missing, so it is supplied. */
static void hold(Parse *parse, int token, Span span)
{
    parse->held = token;
    parse->held_span = span;
    parse->owed_braces = parse->block_count;
    parse->brace_count = parse->block_count = 0;
    parse->item = token;
}

static int deliver(Parse *parse, int token, Span span)
{
    parse->before_span = parse->last_span;
    parse->last = token;
    parse->last_span = span;
    return token;
}

static int deliver_held(Parse *parse, Span *span)
{
    *span = parse->held_span;
    if (parse->owed_braces > 0) {
        parse->owed_braces--;
        span->hi = span->lo;
        return deliver(parse, '}', *span);
    }
    int token = parse->held;
    parse->held = 0;
    return deliver(parse, token, *span);
}

/* Whether panic ends with this token; *drop: it ends, and the token belongs to what is skipped. */
static bool ends_panic(Parse *parse, int token, bool *drop)
{
    int level = parse->panic_blocks;
    if (token == 0 || starts_item(parse, token))
        return true;
    if (token == ';')
        return parse->block_count <= level;
    if (token != '}' || (!parse->last_closes && parse->blocks_before > 0))
        return false;
    *drop = level > 0 && parse->block_count == level;
    return parse->block_count <= level;
}

int parse_next_token(Parse *parse, ISO_YYSTYPE *value, Span *span)
{
    for (;;) {
        if (parse->held)
            return deliver_held(parse, span);
        int token = parse->gave_up ? 0 : scan(parse, value, span);
        if (token == '{' && parse->brace_count == NESTING_MAX) {
            parse_too_deep(parse, *span);
            continue;
        }
        follow(parse, token, *span);
        if (parse->paren_count > NESTING_MAX && !parse->gave_up) {
            parse_too_deep(parse, *span);
            continue;
        }
        if (!parse->panic)
            return deliver(parse, token, *span);
        bool drop = false;
        if (!ends_panic(parse, token, &drop))
            continue;
        drop |= token == ';' && parse->resumed;
        parse->panic = parse->resumed = false;
        if (drop)
            continue;
        if (starts_item(parse, token) && parse->block_count > 0)
            hold(parse, token, *span);
        else
            return deliver(parse, token, *span);
    }
}

/* The parser could go on with the token that did not fit, as the start of another statement; what
 * belongs to the faulty one is skipped all the same. */
bool parse_resumes(Parse *parse)
{
    parse->resumed = parse->panic;
    return parse->panic;
}

/* What the parser sees next after an error at the token last delivered. */
static void recover(Parse *parse)
{
    int token = parse->last;
    bool item = starts_item(parse, token);
    if (item && parse->block_count > 0)
        hold(parse, token, parse->last_span);
    else if (!item && token != 0 && token != ';' && !parse->last_closes) {
        parse->panic = true;
        parse->panic_blocks = parse->blocks_before;
    }
}

/* ---- what was expected ----------------------------------------------------------------------- */

typedef struct Expected {
    const char *const *v;
    int n;
} Expected;

static bool expects(Expected e, const char *name)
{
    for (int i = 0; i < e.n; i++)
        if (!strcmp(e.v[i], name))
            return true;
    return false;
}

/* Several tokens that stand for one notion: told as the notion when `sign` is among them. */
typedef struct Notion {
    const char *title;
    const char *signs[2];
    const char *members; /* separated by spaces, names without theirs */
} Notion;

static const Notion notions[] = {
    {"a declaration", {"contract", "axis"},
     " contract numerics include param axis tree op layout schedule model "},
    {"an expression", {"len", "a number"},
     " len sum max logsumexp a-number a-name a-function's-name '(' '-' "},
    {"a tree", {"mma", "split"}, " mma chain split every lanes round a-name "},
    {"an operator", {"'*'", "'/'"}, " '+' '-' '*' '/' "},
    {"a comparison", {"'<'", "'>'"}, " '<' '>' <= >= "},
};

enum { NOTIONS = sizeof notions / sizeof notions[0], SHOWN_MAX = 5 };

static bool is_member(const Notion *notion, const char *name)
{
    char key[64];
    int n = 0;
    key[n++] = ' ';
    for (const char *s = name; *s && n < 60; s++)
        key[n++] = *s == ' ' ? '-' : *s;
    key[n++] = ' ';
    key[n] = 0;
    return strstr(notion->members, key) != NULL;
}

static Str shown_name(Parse *parse, const char *name)
{
    bool bare = name[0] == '\'' || strchr(name, ' ');
    return str_format(parse->arena, bare ? "%s" : "'%s'", name);
}

static int summarise(Parse *parse, Expected e, Str *shown)
{
    int n = 0;
    bool used[NOTIONS];
    for (int k = 0; k < NOTIONS; k++) {
        used[k] = expects(e, notions[k].signs[0]) && expects(e, notions[k].signs[1]);
        if (used[k] && n < SHOWN_MAX)
            shown[n++] = str_of(notions[k].title);
    }
    for (int i = 0; i < e.n && n < SHOWN_MAX; i++) {
        bool covered = false;
        for (int k = 0; k < NOTIONS; k++)
            covered |= used[k] && is_member(&notions[k], e.v[i]);
        if (!covered)
            shown[n++] = shown_name(parse, e.v[i]);
    }
    return n;
}

static Str list_expected(Parse *parse, Expected e)
{
    Str shown[SHOWN_MAX];
    int n = summarise(parse, e, shown);
    Text text = {.arena = parse->arena};
    for (int i = 0; i < n; i++) {
        if (i)
            text_add(&text, i == n - 1 ? STR(" or ") : STR(", "));
        text_add(&text, shown[i]);
    }
    return text_str(&text);
}

/* ---- the messages ---------------------------------------------------------------------------- */

static bool on_new_line(const Parse *parse, Span span)
{
    Str text = parse->sources->files.v[parse->file].text;
    for (int i = parse->before_span.hi; i < span.lo; i++)
        if (text.s[i] == '\n')
            return true;
    return false;
}

static Str found_text(Parse *parse, Span span)
{
    if (parse->last == 0)
        return STR("the end of the file");
    return str_format(parse->arena, "'%.*s'", STR_FMT(parse_text(parse, span)));
}

static bool missing_semicolon(Parse *parse, Span span, Expected e)
{
    if (!expects(e, "';'") || parse->before_span.hi == 0)
        return false;
    if (parse->last != '}' && parse->last != 0 && !on_new_line(parse, span))
        return false;
    Span place = {parse->file, parse->before_span.hi, parse->before_span.hi};
    Diag *d = diag_add(parse->diags, DIAG_MISSING_SEMICOLON, place, "missing ';' after '%.*s'",
                       STR_FMT(parse_text(parse, parse->before_span)));
    diag_fix(parse->diags, d, place, ";");
    return true;
}

static bool unclosed_block(Parse *parse, Span span)
{
    int open = parse->brace_count;
    if (open == 0 || (parse->last != 0 && !starts_item(parse, parse->last)))
        return false;
    Str found = found_text(parse, span);
    Diag *d = diag_add(parse->diags, DIAG_UNCLOSED_BLOCK, span, "missing '}' before %.*s",
                       STR_FMT(found));
    diag_label(parse->diags, d, parse->braces[open - 1].span, "to close this '{'");
    return true;
}

static bool reserved_word(Parse *parse, Span span, bool keyword, Expected e)
{
    if (!keyword || !expects(e, "a name"))
        return false;
    Str word = parse_text(parse, span);
    Diag *d = diag_add(parse->diags, DIAG_RESERVED_WORD, span,
                       "'%.*s' is a reserved word and cannot be a name", STR_FMT(word));
    diag_fix(parse->diags, d, span, "%.*s_", STR_FMT(word));
    return true;
}

static bool starts_with(const Parse *parse, int at, char c)
{
    Str text = parse->sources->files.v[parse->file].text;
    return at < text.n && text.s[at] == c;
}

static void hint(Parse *parse, Diag *d, Span span, Expected e)
{
    Str found = parse_text(parse, span), before = parse_text(parse, parse->before_span);
    if (str_is(found, ")") && expects(e, "by"))
        diag_note(parse->diags, d,
                  "a reduction names its tree: sum(axis by TREE) body; the larger of two values "
                  "is maximum(a, b)");
    else if (str_is(found, "/") && (str_is(before, "/") || starts_with(parse, span.hi, '/')))
        diag_note(parse->diags, d, "a comment starts with '#'");
    else if (str_is(found, "[") && str_is(before, ")"))
        diag_note(parse->diags, d, "only a name can be indexed; give the value a name first");
}

/* The scanner has complained about the text just here. */
static bool is_consequence(const Parse *parse, Span span)
{
    return parse->bad_at >= parse->before_span.lo && parse->bad_at < span.hi;
}

void parse_syntax_error(Parse *parse, Span span, const char *found, bool found_keyword,
                        const char *const *expected, int n)
{
    (void)found;
    Expected e = {expected, n};
    if (!parse->gave_up && !is_consequence(parse, span) && !missing_semicolon(parse, span, e) &&
        !unclosed_block(parse, span) && !reserved_word(parse, span, found_keyword, e)) {
        Str list = list_expected(parse, e);
        Str text = found_text(parse, span);
        Diag *d = list.n ? diag_add(parse->diags, DIAG_UNEXPECTED_TOKEN, span,
                                    "expected %.*s before %.*s", STR_FMT(list), STR_FMT(text))
                         : diag_add(parse->diags, DIAG_UNEXPECTED_TOKEN, span, "unexpected %.*s",
                                    STR_FMT(text));
        hint(parse, d, span, e);
    }
    recover(parse);
}

/* ---- faults of the text itself --------------------------------------------------------------- */

static const struct {
    const char *wrong, *right;
} lookalikes[] = {
    {"\xc3\x97", "*"},      {"\xc2\xb7", "*"},      {"\xe2\x88\x92", "-"}, {"\xe2\x80\x93", "-"},
    {"\xe2\x86\x92", "->"}, {"\xe2\x89\xa4", "<="}, {"\xe2\x89\xa5", ">="}, {"\xc2\xa0", " "},
    {"\xe2\x80\x9c", "\""}, {"\xe2\x80\x9d", "\""},
};

void parse_bad_text(Parse *parse, Span span, Str text)
{
    parse->bad_at = span.lo;
    int n = utf8_length(text.s, text.n);
    Str first = {text.s, n};
    Span place = {span.file, span.lo, span.lo + n};
    unsigned char c = (unsigned char)text.s[0];
    if (c < 0x20 || c == 0x7f) {
        diag_add(parse->diags, DIAG_STRAY_CHARACTER, place, "stray control character 0x%02x", c);
        return;
    }
    Diag *d = diag_add(parse->diags, DIAG_STRAY_CHARACTER, place,
                       "'%.*s' is not a character of the language", STR_FMT(first));
    for (size_t i = 0; i < sizeof lookalikes / sizeof lookalikes[0]; i++)
        if (str_is(first, lookalikes[i].wrong))
            diag_fix(parse->diags, d, place, "%s", lookalikes[i].right);
}

void parse_bad_number(Parse *parse, Span span, Str text)
{
    Diag *d = diag_add(parse->diags, DIAG_BAD_NUMBER, span, "'%.*s' is not a number",
                       STR_FMT(text));
    if (text.s[0] == '.')
        diag_note(parse->diags, d, "write a digit before the point");
    else
        diag_note(parse->diags, d, "a number is 12, 1.5, 1e-6 or 0x1.8p-3, without a suffix: a "
                                   "literal takes the type of the operand beside it");
}

void parse_long_name(Parse *parse, Span span)
{
    Diag *d = diag_add(parse->diags, DIAG_LONG_NAME, span, "this name has %d bytes, more than %d",
                       span.hi - span.lo, NAME_MAX_BYTES);
    diag_note(parse->diags, d, "choose a shorter one: names go into the names of kernels");
}

void parse_open_string(Parse *parse, Span span)
{
    parse->bad_at = span.lo;
    Diag *d = diag_add(parse->diags, DIAG_OPEN_STRING, span, "the quoted path does not end");
    diag_fix(parse->diags, d, (Span){span.file, span.hi, span.hi}, "\"");
}
