// Server-sent events from the bytes of a response (HTML Living Standard, section 9.2.6).

/** The messages of a body, one array per chunk that completes some; an incomplete one at the end is dropped. `heard` is
    called for each chunk, also for a heartbeat. */
export async function* messages(body, heard) {
  let rest = '', message = {};
  // Safari has no `for await` for streams.
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const {value: chunk, done} = await reader.read();
    if (done) return;
    heard();
    const lines = (rest + chunk).split('\n');
    rest = lines.pop();
    const complete = [];
    for (const line of lines) {
      if (line === '') {
        if (message.data) complete.push({id: message.id, name: message.event, data: JSON.parse(message.data)});
        message = {};
      } else if (!line.startsWith(':')) {
        const colon = line.indexOf(':');
        message[line.slice(0, colon)] = line.slice(colon + 1).trimStart();
      }
    }
    if (complete.length) yield complete;
  }
}
