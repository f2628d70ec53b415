include "gateway";

# A backup with the given secrets, by their paths.
def filled($kept):
  reduce (secrets | select($kept[.path])) as $secret (.; setpath($secret.at; $kept[$secret.path]));

# The operations that change a running value to that of the backup, and {"missing": path} for a secret that is in
# neither. A list with masked secrets cannot be set as a whole: its items are set by their usernames.
def operations($path; $running):
  if . == $running then empty
  elif . == mask then {missing: $path}
  elif type == "object" and . != {} then
    ($running | objects // {}) as $old | . as $new
    | (($old | keys) - ($new | keys) | .[] as $key | {op: "delete", path: ($path | step($key))}),
      ($new | keys[] as $key | .[$key] | operations($path | step($key); $old[$key]))
  elif type == "array" and ([secrets] != []) then
    INDEX(($running | arrays)[]; .username) as $old | INDEX(.[]; .username) as $new
    | (($old | keys) - ($new | keys) | .[] as $name | {op: "delete", path: ($path | step($name))}),
      (.[] | .username as $name | ($path | step($name)) as $path
        | if $old[$name] then operations($path; $old[$name])
          else ([secrets([]; $path) | {missing: .path}] | select(. != []))
            // [{op: "set", path: $path, value: .}] | .[] end)
  else {op: "set", path: $path, value: .} end;
