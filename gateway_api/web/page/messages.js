// Server-sent events from the bytes of an answer (HTML Living Standard, section 9.2.6).

/** The messages of a body, as many at a time as a piece of it completes; what is cut off at the end is dropped.
    `heard` is called for each piece, of whatever it consists. */
export async function* messages(body, heard) {
  let rest = '', message = {};
  // Not for await, which Safari lacks for streams.
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const {value: piece, done} = await reader.read();
    if (done) return;
    heard();
    const lines = (rest + piece).split('\n');
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
