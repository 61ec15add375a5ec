# shellcheck shell=bash
# bash completion for gpusharectl and gpushare-daemon. Commands, options and the kinds of their values are read from
# --help, so that there is one list; only what a kind of value can be is known here.

# "NAME VALUE..." of each command (lines "  name ARG   text") and option ("  --name ARG, --other ARG   text").
_gpushare_list() {
  "$1" --help 2>/dev/null | awk '
    /^usage:/ || /^$/ { sections += /^$/; next }
    /^  -|^  [a-z][a-z-]*( |$)/ {
      sub(/^  /, ""); sub(/   *.*/, "")
      if (/^-/) { count = split($0, parts, /, /) } else if (sections < 2) { count = split($0, parts, / \| /) } else next
      for (i = 1; i <= count; i++) print parts[i]
    }'
}

_gpushare_ids() { # the daemon is asked, so none when there is none
  "$1" status --json 2>/dev/null | sed -n "s/^ *\"$2\": \"\{0,1\}\([^\",]*\).*/\1/p" | sort -u
}

# What a value of this kind can be; 1: a file.
_gpushare_values() {
  case $2 in
    JOB) _gpushare_ids "$1" job ;;
    \[COMMAND\]) _gpushare_list "$1" | awk '/^[a-z]/ { print $1 }' ;;
    UUID*) _gpushare_ids "$1" uuid; echo all ;;
    CLASS) echo standard production opportunistic ;;
    HOW) echo managed swap off ;;
    LEVEL) echo error warn info debug ;;
    NAME) echo fair rr fifo srtf priority pack ;;
    PATH | FILE | DIR) return 1 ;;
    *\|*) tr '|' '\n' <<<"$2" | grep '^[a-z]' ;;
  esac
}

# The kind of the value that the last of these words waits for; 1: of none.
_gpushare_kind() {
  local list=$1 name kinds kind=
  shift
  while read -r name kinds; do
    [[ $name == "${!#}" ]] && kind=${kinds%% *}
  done <<<"$list"
  [[ -n $kind ]] && echo "$kind"
}

_gpushare_offer() {
  local values
  if values=$(_gpushare_values "$1" "$2"); then
    mapfile -t COMPREPLY < <(compgen -W "$values" -- "$3")
  else
    mapfile -t COMPREPLY < <(compgen -f -- "$3")
    compopt -o filenames 2>/dev/null
  fi
}

_gpushare() {
  local program=$1 current=${COMP_WORDS[COMP_CWORD]} list word kind name kinds i skip=0
  local -a words=() given
  list=$(_gpushare_list "$program")
  # The words so far, without options and their values.
  for ((i = 1; i < COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    if ((skip)); then
      skip=0
    elif [[ ${words[0]-} == run && ($word != -* || $word == --) ]]; then
      [[ $word != -- ]] || ((i++))
      _gpushare_command "$i"
      return
    elif [[ $word == -* ]]; then
      kind=$(_gpushare_kind "$list" "$word") && skip=1
    else
      words+=("$word")
    fi
  done
  if ((skip)); then
    _gpushare_offer "$program" "$kind" "$current"
  elif [[ $current == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$(awk '/^-/ { print $1 }' <<<"$list")" -- "$current")
  elif [[ ${words[0]-} == run ]]; then
    _gpushare_command "$COMP_CWORD"
  elif ((${#words[@]} == 0)); then
    mapfile -t COMPREPLY < <(compgen -W "$(awk '/^[a-z]/ { print $1 }' <<<"$list")" -- "$current")
  else
    while read -r name kinds; do
      [[ $name != "${words[0]}" ]] || read -ra given <<<"$kinds"
    done <<<"$list"
    ((${#given[@]} == 0)) || kind=${given[-1]} # of "JOB..." there are many
    [[ ${kind-} == *... ]] || kind=${given[${#words[@]} - 1]-}
    [[ -z $kind ]] || _gpushare_offer "$program" "${kind%...}" "$current"
  fi
}

# The program of run is word $1: from there on it is a command line of its own.
_gpushare_command() {
  if declare -F _command_offset >/dev/null; then
    _command_offset "$1"
  elif (($1 == COMP_CWORD)); then
    mapfile -t COMPREPLY < <(compgen -c -- "${COMP_WORDS[COMP_CWORD]}")
  else
    mapfile -t COMPREPLY < <(compgen -f -- "${COMP_WORDS[COMP_CWORD]}")
  fi
}

complete -F _gpushare gpusharectl gpushare-daemon
