#!/bin/sh
# Per-minute count, median and maximum of a numeric field in one service's log.
#
# Reads one line of JSON on standard input, {"service":"checkout","field":"dur_ms"}, and prints one
# line of JSON. Exit status 2: the question cannot be answered; standard error says why, line by
# line. Needs a POSIX sh and awk, nothing else.
set -eu
export LC_ALL=C
cd -- "$(dirname -- "$0")/.."

REQUEST=
IFS= read -r REQUEST || :
LOGS=
for log in logs/*.log; do
    log=${log##*/}
    LOGS="$LOGS ${log%.log}"
done
export REQUEST LOGS

exec awk '
BEGIN {
    # The longest complaint: room for the first lines in full, not for a whole log.
    max_lines = 40; piece = 64

    if (ENVIRON["REQUEST"] == "") die("request: nothing on standard input")
    if (!parse(ENVIRON["REQUEST"])) die("request:1:" at ": " problem)
    for (i = 1; i <= keys; i++)
        if (key[i] != "service" && key[i] != "field")
            die("request: unknown key \"" key[i] "\"; it takes \"service\" and \"field\"")
    service = wanted("service"); field = wanted("field")

    known = split(ENVIRON["LOGS"], name, " ")
    for (i = 1; i <= known; i++) if (name[i] == service) found = 1
    if (!found) die("request: no log of a service \"" service "\"; there are: " list(name, known))

    read_log("logs/" service ".log")
    if (hits == 0) complain()
    answer()
}

# Returns a text of the request, or gives up.
function wanted(k) {
    if (!(k in value)) die("request: no \"" k "\"")
    if (type[k] != "string" || value[k] == "") die("request: \"" k "\" must be a non-empty text")
    return value[k]
}

# Files each value of the field under its minute; keeps the names of all numeric fields.
function read_log(path,    line, minute, i) {
    log_path = path
    while ((getline line < path) > 0) {
        lines++
        text[lines] = line
        if (!parse(line)) { unreadable++; continue }
        for (i = 1; i <= keys; i++)
            if (type[key[i]] == "number" && !(key[i] in numeric)) { numeric[key[i]] = 1; numerics[++kinds] = key[i] }
        if (type[field] != "number" || type["ts"] != "string") continue
        hits++
        minute = substr(value["ts"], 1, 16)
        if (!(minute in count)) order[++minutes] = minute
        sample[minute, ++count[minute]] = value[field] + 0
    }
    close(path)
    if (lines == 0) die(path ": empty or not readable")
}

# Says of the first lines, one by one, what they have instead, and of all which fields exist.
function complain(    i, shown) {
    shown = lines < max_lines ? lines : max_lines
    for (i = 1; i <= shown; i++)
        say(log_path ":" i ": no numeric field \"" field "\": " substr(text[i], 1, piece) (length(text[i]) > piece ? "..." : ""))
    if (lines > shown) say(log_path ": the same for " lines - shown " more lines")
    sort_texts(numerics, kinds)
    say(log_path ": numeric fields seen: " list(numerics, kinds))
    die("latency: nothing to measure in " lines " lines")
}

function answer(    m, i, n, minute, v, sep) {
    printf "{\"service\":\"%s\",\"field\":\"%s\",\"lines\":%d,\"lines_with_field\":%d,\"unreadable_lines\":%d,\"minutes\":[", service, field, lines, hits, unreadable
    for (m = 1; m <= minutes; m++) {
        minute = order[m]; n = count[minute]
        for (i = 1; i <= n; i++) v[i] = sample[minute, i]
        sort_numbers(v, n)
        # The nearest-rank median: a value that was really measured.
        printf "%s{\"minute\":\"%s\",\"count\":%d,\"p50\":%s,\"max\":%s}", sep, minute, n, v[int((n + 1) / 2)], v[n]
        sep = ","
    }
    print "]}"
    exit 0
}

# Parses one flat JSON object into key[1..keys], value[k] and type[k].
# On failure returns 0 and leaves where (at) and why (problem).
function parse(s,    k, c) {
    split("", key); split("", value); split("", type)
    keys = 0; src = s; at = 1
    sub(/\r$/, "", src)
    if (!take("{")) return 0
    space()
    if (substr(src, at, 1) == "}") at++
    else for (;;) {
        if (!string()) return 0
        k = out
        if (!take(":") || !scalar()) return 0
        if (!(k in type)) key[++keys] = k
        value[k] = out; type[k] = kind
        space()
        c = substr(src, at++, 1)
        if (c == "}") break
        if (c != ",") { at--; return fails("expected \",\" or \"}\"") }
    }
    space()
    return at > length(src) ? 1 : fails("text after the object")
}

function scalar(    rest) {
    space()
    rest = substr(src, at)
    if (substr(rest, 1, 1) == "\"") { kind = "string"; return string() }
    if (match(rest, /^-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?/)) kind = "number"
    else if (match(rest, /^(true|false|null)/)) kind = "word"
    else return fails("expected a text, a number, true, false or null")
    out = substr(rest, 1, RLENGTH)
    at += RLENGTH
    return 1
}

function string(    c) {
    if (!take("\"")) return 0
    out = ""
    while (at <= length(src)) {
        c = substr(src, at++, 1)
        if (c == "\"") return 1
        if (c == "\\") {
            # Escapes stay as they stand; only the quote matters for finding the end.
            c = c substr(src, at++, 1)
        }
        out = out c
    }
    return fails("text without an end")
}

function take(c) {
    space()
    if (substr(src, at, 1) != c) return fails("expected " (c == "\"" ? "a text" : "\"" c "\""))
    at++
    return 1
}

function space() { while (substr(src, at, 1) ~ /^[ \t]$/) at++ }
function fails(why) { problem = why; return 0 }

function list(a, n,    i, s) {
    for (i = 1; i <= n; i++) s = s (i > 1 ? ", " : "") a[i]
    return s
}

# Insertion sorts: a minute of one service is short.
function sort_numbers(a, n,    i, j, x) {
    for (i = 2; i <= n; i++) {
        x = a[i]
        for (j = i - 1; j > 0 && a[j] + 0 > x + 0; j--) a[j + 1] = a[j]
        a[j + 1] = x
    }
}
function sort_texts(a, n,    i, j, x) {
    for (i = 2; i <= n; i++) {
        x = a[i]
        for (j = i - 1; j > 0 && a[j] "" > x ""; j--) a[j + 1] = a[j]
        a[j + 1] = x
    }
}

function say(s) { print s | "cat 1>&2" }
function die(s) { say(s); close("cat 1>&2"); exit 2 }
'
