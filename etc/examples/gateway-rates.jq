include "gateway";

def cell: "[ ]*(?:\"(?:[^\"]|\"\")*\"|[^\", ][^\",]*)[ ]*";

def bare: sub("^ +"; "") | sub(" +$"; "") | if startswith("\"") then .[1:-1] | gsub("\"\""; "\"") else . end;

# The cells of a line; null if it does not have three.
def cells: [capture("^(?<a>\(cell)),(?<b>\(cell)),(?<c>\(cell))$") | .[] | bare] | if . == [] then null else . end;

# The lines of a file as tab-separated text: "bad" line reason; "offline" line name; "rate" line name id body. $online is
# the sessions as arrays of a username and an id.
def orders($online):
  (reduce $online[] as [$username, $id] ({}; .[$username] += [$id])) as $ids
  | foreach (inputs | rtrimstr("\r")) as $text (
      {number: 0, seen: {}};
      .number += 1 | .out = null
      | if .by == "" or ($text | test("^\\s*(#|$)")) then .
        else ($text | cells) as $cells
          | if .by == null then
              if ($cells // [])[1:] == ["down", "up"] and ($cells[0] | IN("username", "id")) then .by = $cells[0]
              else .by = "" | .out = ["bad", .number, "must be username,down,up or id,down,up"] end
            elif $cells == null then .out = ["bad", .number, "must have three fields: username or id, down, up"]
            elif .by == "id" and ($cells[0] | test("^[1-9][0-9]*$") | not) then
              .out = ["bad", .number, "must begin with a session id"]
            elif .seen[$cells[0]] then
              .out = ["bad", .number, "\($cells[0]) is in line \(.seen[$cells[0]]) already"]
            else .seen[$cells[0]] = .number | .out = ["good", .number] + $cells end
        end;
      . as {$by, $out}
      | $out | values
      | if .[0] == "bad" then .
        else . as [$_, $number, $who, $down, $up]
          | (if $by == "id" then [$who] else $ids[$who] // [] end)
          | if . == [] then ["offline", $number, $who]
            else .[] | ["rate", $number, $who, ., ({rate_down: $down, rate_up: $up} | tojson)] end
        end)
  | .[:3] as $first | ($first | map(line)) + .[3:] | join("\t");
