# What the gateway-* scripts share of jq.

# Text for a terminal: what the gateway says may have come from a subscriber.
def line:
  tostring
  | if test("[\\p{Cc}\\p{Cf}\\p{Zl}\\p{Zp}]") then gsub("[\\p{Cc}\\p{Cf}\\p{Zl}\\p{Zp}]"; "?") else . end;

# An error of the API, one line a problem: the field and its rule.
def complaint:
  if .detail then .detail
  elif .errors then .errors[] | if .path == "" then .message else "\(.path): \(.message)" end
  elif .hint then .message, .hint
  else .message // "the answer is not the gateway's" end
  | line;

# Bits a second, as an operator writes them.
def rate:
  . as $bps
  | first([1e9, "gbit"], [1e6, "mbit"], [1e3, "kbit"], [1, "bit"] | select($bps % .[0] == 0))
  | "\($bps / .[0])\(.[1])";

# Rows of values, as lines with aligned columns.
def table:
  map(map(line))
  | ((transpose | map(map(length) | max))[:-1] + [0]) as $widths
  | .[] | [., $widths] | transpose
  | map(.[0] + " " * (.[1] - (.[0] | length))) | join("  ");

# Epoch seconds, as an operator reads them.
def time: if . then strflocaltime("%Y-%m-%d %H:%M:%S") else "-" end;

# What the API shows instead of a secret.
def mask: "********";

# A path of the configuration, a step further, spelled as the gateway spells it.
def step($name):
  (if . == "" then "" else "\(.)." end)
  + if $name | test("^([A-Za-z_][A-Za-z0-9_-]*|[0-9]+)$") then $name else "\"\($name)\"" end;

# Each secret of a configuration: where jq has it, and its path.
def secrets($at; $path):
  if . == mask then {at: $at, path: $path}
  elif type == "object" then
    to_entries[] | .key as $key | .value | secrets($at + [$key]; $path | step($key))
  elif type == "array" then
    to_entries[] | .key as $index | .value
    | ((objects | .username) // ($index | tostring)) as $name
    | secrets($at + [$index]; $path | step($name))
  else empty end;
def secrets: secrets([]; "");
