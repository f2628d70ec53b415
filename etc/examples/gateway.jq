# jq functions of the gateway-* scripts.

# Text that is safe for a terminal: some of it comes from subscribers.
def line:
  tostring
  | if test("[\\p{Cc}\\p{Cf}\\p{Zl}\\p{Zp}]") then gsub("[\\p{Cc}\\p{Cf}\\p{Zl}\\p{Zp}]"; "?") else . end;

# An error response, one line per problem: the field and the rule.
def complaint:
  if .detail then .detail
  elif .errors then .errors[] | if .path == "" then .message else "\(.path): \(.message)" end
  elif .hint then .message, .hint
  else .message // "the response is not from the gateway" end
  | line;

# Bits per second as a rate.
def rate:
  . as $bps
  | first([1e9, "gbit"], [1e6, "mbit"], [1e3, "kbit"], [1, "bit"] | select($bps % .[0] == 0))
  | "\($bps / .[0])\(.[1])";

# Rows of values as lines with aligned columns.
def table:
  map(map(line))
  | ((transpose | map(map(length) | max))[:-1] + [0]) as $widths
  | .[] | [., $widths] | transpose
  | map(.[0] + " " * (.[1] - (.[0] | length))) | join("  ");

# The address of a session or event.
def address: .ip_address // .ipv6_address // "-";

# Epoch seconds as local time.
def time: if . then strflocaltime("%Y-%m-%d %H:%M:%S") else "-" end;

# The API shows this instead of a secret.
def mask: "********";

# A configuration path with one more segment, in the spelling of the gateway.
def step($name):
  (if . == "" then "" else "\(.)." end)
  + if $name | test("^([A-Za-z_][A-Za-z0-9_-]*|[0-9]+)$") then $name else "\"\($name)\"" end;

# Each secret of a configuration: its path for jq, and its path in the API.
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
