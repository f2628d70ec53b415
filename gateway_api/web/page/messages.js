// Server-sent events from the bytes of a response (HTML Living Standard, section 9.2.6).

/** The names of the events that the page shows. */
export const UP = 'session_up', DOWN = 'session_down';

/** Tells whether the page shows a message: not a gap, and not an event that a later gateway may add. */
export const isShown = ({name}) => name === UP || name === DOWN;

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
