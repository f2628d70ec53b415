// Who has come and gone since somebody looks: every event counts once.

import {Chart} from './chart.js';
import {byId, write} from './elements.js';
import {count, timeOfDay} from './format.js';

const SECONDS = 120;

export class Arrivals {
  #came = 0;
  #went = 0;
  #now = {up: 0, down: 0};
  // Whether this second's events are those of this second, and not what had been missed before.
  #true = false;
  #gaps = -1;

  constructor(stream) {
    this.late = () => stream.late;
    this.chart = new Chart(byId('arrivals-chart'), {length: SECONDS, format: most => `${count(most)}/s`, least: 1});
    write('watched-since', timeOfDay(Date.now() / 1000));
    stream.addEventListener('events', ({detail}) => this.#take(detail, stream.position));
    stream.addEventListener('live', () => { this.#true = false; });
    stream.addEventListener('lost', () => { this.#true = false; });
    stream.addEventListener('gap', ({detail}) => this.#gap(detail));
    setInterval(() => this.#tick(), 1000);
  }

  #take(events, position) {
    const came = events.filter(event => event.name === 'session_up').length;
    if (this.late()) this.#true = false;
    this.#came += came;
    this.#went += events.length - came;
    this.#now.up += came;
    this.#now.down += events.length - came;
    write('came', count(this.#came));
    write('went', count(this.#went));
    byId('arrivals-chart').dataset.until = position;
  }

  #gap({id}) {
    this.#gaps += 1;
    byId('arrivals-chart').dataset.since ??= id;
    if (this.#gaps) write('gaps', `Events were lost ${this.#gaps} times: the numbers above are read anew, these have a hole.`);
  }

  #tick() {
    if (document.hidden) return;
    this.chart.push(this.#true ? this.#now : null);
    if (this.#true) {
      write('arrivals-now', count(this.#now.up));
      write('departures-now', count(this.#now.down));
    }
    this.#now = {up: 0, down: 0};
    this.#true = true;
  }
}
