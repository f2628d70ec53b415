include "gateway";

# An event, for people.
def told($data):
  if .event == "gap" then
    "GAP   events are lost, those from \($data.oldest) to \($data.newest) are not: list again"
  elif .event == "session_up" then
    "up    \($data.id)  \($data.username)  \($data.type)  \($data.ip_address)"
  else "down  \($data.id)  \($data.username)  \($data.reason)" end;

# A stream of events as lines: the id and what happened; an empty one for a heartbeat; ! and what isn't a stream.
def lines:
  foreach inputs as $line (null;
    if $line == "" then {event, id, data, whole: true}
    elif .whole then {} else . end
    | .line = $line
    | if $line | test("^(id|event|data): ") then .[$line | split(": ")[0]] = $line[($line | index(": ")) + 2:]
      else . end;
    if .whole and .data then "\(.id | line)\t\(told(.data | fromjson) | line)"
    elif .line | startswith(":") then ""
    elif .line | startswith("{") then "!\t\(.line)"
    else empty end);
