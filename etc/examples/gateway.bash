# shellcheck shell=bash
# The functions of the gateway-* scripts, which source this file.
#
#   GATEWAY_URL            the URL of the API; https://localhost:8443 by default
#   GATEWAY_CA             the CA certificate for its certificate, in PEM; the system's by default
#   GATEWAY_USER           the user
#   GATEWAY_PASSWORD_FILE  a file with the password, for scripts without a terminal
#   GATEWAY_TOKEN_FILE     the file for the token

set -euo pipefail

# Exit codes. 0: success.
readonly FAILED=1 # refused by the gateway, or only partly done
readonly USAGE=2
readonly AWAY=3   # the gateway or its core is unavailable
readonly DENIED=4 # not logged in, or the role is not sufficient

program=${0##*/}
readonly VERSION=0.1.0
[[ ${1-} != --version ]] || { printf '%s %s\n' "$program" "$VERSION" && exit; }
here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")

complain() { printf '%s: %s\n' "$program" "$*" >&2; }

die() {
    local code=$1
    shift
    complain "$@"
    exit "$code"
}

for tool in curl jq; do
    command -v "$tool" >/dev/null || die "$USAGE" "$tool is needed: apt-get install $tool"
done

GATEWAY_URL=${GATEWAY_URL:-https://localhost:8443}
GATEWAY_URL=${GATEWAY_URL%/}
# One file per URL: one gateway must not receive the token of another.
token_file=${GATEWAY_TOKEN_FILE:-${XDG_RUNTIME_DIR:-$HOME/.cache}/gateway/${GATEWAY_URL//[^A-Za-z0-9.-]/_}}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
answer=$work/answer
status=000

options=(--silent --show-error --proto '=https' --connect-timeout 5)
[[ -z ${GATEWAY_CA:-} ]] || options+=(--cacert "$GATEWAY_CA")

# The value of an option that requires one.
value_of() {
    (($# > 1)) || die "$USAGE" "$1 requires a value"
    printf '%s' "$2"
}

encoded() { jq -Rr --slurp @uri < <(printf '%s' "$1"); }

# once METHOD PATH [BODY [HEADER...]]: one request. Sets $status, and writes the response to $answer. Bodies
# and tokens go through pipes and files, which ps does not show.
once() {
    local method=$1 path=$2 body=${3-} header type='' arguments=()
    shift "$(($# < 3 ? $# : 3))"
    for header; do arguments+=(--header "$header"); done
    [[ ! -e $token_file || $path == /auth/login ]] || arguments+=(--header "@$token_file")
    [[ -z $body ]] || arguments+=(--data-binary @-)
    rm -f "$answer"
    if printf '%s' "$body" | curl "${options[@]}" --max-time 60 --request "$method" "${arguments[@]}" \
        --output "$answer" --dump-header "$work/head" --write-out '%{http_code} %{content_type}\n' \
        "$GATEWAY_URL/api/v1$path" >"$work/outcome" 2>"$work/trouble"; then
        read -r status type <"$work/outcome"
        [[ $type == application/json* ]] || status=none
    else
        status=none
        type=$(sed -n '1s/^curl: ([0-9]*) //p' "$work/trouble")
    fi
    trouble=$type
    [[ $status == 2?? ]]
}

# A header of the last response.
header() { tr -d '\r' <"$work/head" | sed -n "s/^$1: //Ip"; }

# Sets $reason to the errors of the last request, one per line, and $code to the exit code for it.
judge() {
    code=$FAILED
    if [[ $status == none ]]; then
        reason="no response from a gateway at $GATEWAY_URL: $trouble"
        code=$AWAY
        return
    fi
    reason=$(jq -L "$here" -r 'include "gateway"; complaint' "$answer")
    case $status in
        401 | 403 | 429) code=$DENIED ;;
        5??)
            reason+=" (request $(header X-Request-ID))"
            code=$AWAY
            ;;
    esac
}

# Prints the error, and ends the script.
fail() {
    local line
    judge
    while IFS= read -r line; do complain "$line"; done <<<"$reason"
    [[ $status != 401 || $program == gateway-login ]] || complain "gateway-login logs in"
    exit "$code"
}

# Like `once`, but logs in again after the token has expired, with the password file or at a terminal.
try() {
    if once "$@"; then return; fi
    [[ $status == 401 ]] || return 1
    [[ -n ${GATEWAY_PASSWORD_FILE:-} ]] || has_terminal || return 1
    complain "not logged in, or the token has expired"
    log_in "${GATEWAY_PASSWORD_FILE:-}"
    once "$@"
}

# Like `try`, but an error ends the script.
request() { try "$@" || fail; }

has_terminal() { { : </dev/tty; } 2>/dev/null; }

# log_in FILE: the first line of the file is the password. Without a file it prompts at the terminal.
log_in() {
    local file=$1 user=${GATEWAY_USER:-} password='' body draft
    if [[ -n $file ]]; then
        [[ -n $user ]] || die "$USAGE" "no user: set GATEWAY_USER or use --user"
        IFS= read -r password <"$file" || [[ -n $password ]] || die "$USAGE" "no password in $file"
    else
        has_terminal || die "$USAGE" "no terminal for the password: use --password-file"
        [[ -n $user ]] || IFS= read -rp "Username for $GATEWAY_URL: " user </dev/tty
        IFS= read -rsp "Password of $user: " password </dev/tty
        printf '\n' >/dev/tty
    fi
    body=$(printf '%s\n%s\n' "$user" "${password%$'\r'}" | jq -nR '{username: input, password: input}')
    once POST /auth/login "$body" || fail
    # mktemp makes it readable for its owner only; mv makes it complete at once.
    {
        (umask 077 && mkdir -p "$(dirname "$token_file")") &&
            draft=$(mktemp "$token_file.XXXXXX") &&
            jq -r '"Authorization: Bearer \(.access_token)"' "$answer" >"$draft" &&
            mv "$draft" "$token_file"
    } || die "$FAILED" "cannot write the token to $token_file"
}

# agreed QUESTION: asks at the terminal for confirmation; --yes confirms.
agreed() {
    local said=''
    [[ -z ${yes:-} ]] || return 0
    [[ -t 0 ]] || die "$USAGE" "no terminal for the confirmation: use --yes"
    read -rp "$1 [y/N] " said || printf '\n' >&2
    [[ $said == [yY] || $said == [yY]es ]]
}

# subscribers QUERY FILTER: the output of the jq filter for each session. QUERY begins with &, or is empty.
subscribers() {
    local query=$1 filter=$2 cursor=''
    while :; do
        request GET "/subscribers?limit=2000$query${cursor:+&cursor=$cursor}"
        jq -L "$here" -c "include \"gateway\"; .data.sessions[] | $filter" "$answer"
        cursor=$(jq -r '.data.next_cursor // "" | @uri' "$answer")
        [[ -n $cursor ]] || return 0
    done
}
