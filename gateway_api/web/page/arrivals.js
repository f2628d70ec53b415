// Sessions started and ended since the page opened. Each event counts once.

import {Chart} from './chart.js';
import {element, write} from './elements.js';
import {count, timeOfDay} from './format.js';
import {UP} from './messages.js';
import {eventsBefore} from './past.js';
import {chartPlace, legend, panel} from './section.js';

const SECONDS = 120;
// Seconds within which an event arrives; both times are whole seconds. After a lost connection it arrives later.
const FRESH = 3;

/** The panel of the sessions started and ended. */
export const arrivals = (api, stream) => new Arrivals(api, stream).panel;

class Arrivals {
  #came = 0;
  #went = 0;
  #now = {up: 0, down: 0};
  // True if the stream was connected for all of this second.
  #whole = false;
  #gaps = -1;

  constructor(api, stream) {
    this.api = api;
    this.place = chartPlace('arrivals', 'Sessions started and ended in each of the last 120 seconds');
    this.panel = panel('arrivals', 'Sessions started and ended', [
      legend(['up', 'Started', 'arrivals-now'], ['down', 'Ended', 'departures-now']), this.place,
      element('p', {class: 'note'}, `Since ${timeOfDay(Date.now() / 1000)}: `, element('b', {id: 'came', text: 0}), ' started, ',
        element('b', {id: 'went', text: 0}), ' ended. ', element('span', {id: 'gaps'})),
    ], {note: 'per second, last two minutes'});
    this.chart = new Chart(this.place, {span: SECONDS, step: 1, format: most => `${count(most)}/s`, least: 1, names: ['started', 'ended']});
    stream.addEventListener('events', ({detail}) => this.#take(detail, stream.position));
    for (const state of ['live', 'lost']) stream.addEventListener(state, () => { this.#whole = false; });
    stream.addEventListener('gap', ({detail}) => this.#gap(detail));
    setInterval(() => this.#tick(), 1000);
  }

  #take(events, position) {
    const came = events.filter(event => event.name === UP).length;
    this.#came += came;
    this.#went += events.length - came;
    const since = this.api.now() - FRESH;
    for (const {name, data} of events) {
      if (data.at > since) this.#now[name === UP ? 'up' : 'down'] += 1;
    }
    write('came', count(this.#came));
    write('went', count(this.#went));
    this.place.dataset.until = position;
  }

  #gap({id, data}) {
    this.#gaps += 1;
    // The first one is the answer to the sign-in.
    if (!this.#gaps) this.#fill(data);
    this.place.dataset.since ??= id;
    if (this.#gaps) write('gaps', `Events were lost ${this.#gaps} times: these two numbers are incomplete.`);
  }

  /** Shows the events of before the sign-in, which the core still holds. */
  async #fill(held) {
    const seconds = new Map(), ahead = this.api.now() - Date.now() / 1000;
    for (const {name, data} of await eventsBefore(this.api, held)) {
      const counted = seconds.get(data.at) ?? {up: 0, down: 0, at: data.at - ahead};
      counted[name === UP ? 'up' : 'down'] += 1;
      seconds.set(data.at, counted);
    }
    this.chart.fill([...seconds.values()].filter(({at}) => at > Date.now() / 1000 - SECONDS).sort((one, other) => one.at - other.at));
  }

  #tick() {
    if (document.hidden) return;
    this.chart.push(this.#whole ? this.#now : null);
    if (this.#whole) {
      write('arrivals-now', count(this.#now.up));
      write('departures-now', count(this.#now.down));
    }
    this.#now = {up: 0, down: 0};
    this.#whole = true;
  }
}
