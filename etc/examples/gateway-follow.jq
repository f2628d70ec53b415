include "gateway";

def place: "\(.mac_address // "-")  \(.access_interface)";

# An event as text.
def told($data):
  if .event == "gap" then
    "GAP   events are lost; the gateway holds \($data.oldest) to \($data.newest): list the sessions again"
  elif .event == "session_up" then
    "up    \($data.id)  \($data.username)  \($data.type)  \($data | address)  \($data | place)"
  else "down  \($data.id)  \($data.username)  \($data.reason)  \($data | place)  \($data.duration_seconds) s" end;

# A stream of events as lines: the id, the time (-1 is now) and the text; an empty line for a heartbeat; !, -1 and the
# text of a response that is not a stream.
def lines:
  foreach inputs as $line (null;
    if $line == "" then {event, id, data, whole: true}
    elif .whole then {} else . end
    | .line = $line
    | if $line | test("^(id|event|data): ") then .[$line | split(": ")[0]] = $line[($line | index(": ")) + 2:]
      else . end;
    if .whole and .data then (.data | fromjson) as $data | "\(.id | line)\t\($data.at // -1)\t\(told($data) | line)"
    elif .line | startswith(":") then ""
    elif .line | startswith("{") then "!\t-1\t\(.line)"
    else empty end);
