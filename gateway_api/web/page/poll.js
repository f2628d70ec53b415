// What is read again and again: gently, and only while somebody looks at it.

const polls = new Set();
let view = null, running = false;

/** Calls `read` every so many seconds while one of the views is shown, or any; not again before it is done. */
export class Poll {
  #timer = null;
  #busy = false;
  #again = false;

  constructor(seconds, read, views = null) {
    this.pause = seconds * 1000;
    this.read = read;
    this.views = views;
    polls.add(this);
  }

  get #wanted() {
    return running && !document.hidden && (!this.views || this.views.includes(view));
  }

  /** Now, or as soon as the reading under way is done. */
  async now() {
    clearTimeout(this.#timer);
    if (!this.#wanted) return;
    if (this.#busy) {
      this.#again = true;
      return;
    }
    this.#busy = true;
    try {
      await this.read();
    } finally {
      this.#busy = false;
      const again = this.#again;
      this.#again = false;
      if (again) this.now();
      else if (this.#wanted) this.#timer = setTimeout(() => this.now(), this.pause);
    }
  }

  rest() {
    clearTimeout(this.#timer);
  }
}

export function show(name) {
  view = name;
  renew();
}

export function run(wanted) {
  running = wanted;
  renew();
}

function renew() {
  for (const poll of polls) {
    poll.rest();
    poll.now();
  }
}

document.addEventListener('visibilitychange', renew);
