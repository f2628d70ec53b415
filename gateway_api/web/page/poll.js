// Periodic requests, only while the page is visible.

const polls = new Set();
let view = null, running = false;

/** Calls `read` every `seconds` while one of `views` is shown, or any view if null; one call at a time. Without `seconds`,
    only when the view appears, and by `now`. */
export class Poll {
  #timer = null;
  #busy = false;
  #again = false;

  /** @param {number | null} seconds @param {() => Promise<void>} read @param {string[] | null} views */
  constructor(seconds, read, views = null) {
    this.pause = seconds && seconds * 1000;
    this.read = read;
    this.views = views;
    polls.add(this);
  }

  get #wanted() {
    return running && !document.hidden && (!this.views || this.views.includes(view));
  }

  /** Reads now, or as soon as the current call ends. */
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
      else if (this.#wanted && this.pause) this.#timer = setTimeout(() => this.now(), this.pause);
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
