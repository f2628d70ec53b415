// Two opposite quantities over time: one goes up from the axis, the other down, on one scale. The time axis ends now. Where
// a user points, the time and both values are shown; arrow keys move there from sample to sample.

import {element} from './elements.js';
import {dayAndTime, timeOfDay} from './format.js';

const NAMESPACE = 'http://www.w3.org/2000/svg';
const HEIGHT = 200, TICKS = 3;
// Seconds of an axis whose times need their day, and the least share of the height that has room for a label.
const DAY = 86_400, LABEL = 0.2;

export class Chart {
  #samples = [];
  #end = Date.now() / 1000;
  // The share of the width where a pointer is, or the time of the sample to which keys have moved.
  #pointed = null;
  #picked = null;

  /** Shows the last `span` seconds in `place`, one sample each `step` seconds. `format` formats a value; each end of the scale
      is at least `least`. `names` are those of the quantities above and below the axis. */
  constructor(place, {span, step, format, least, names}) {
    Object.assign(this, {place, span, step, format, least, names, length: span / step});
    const picture = make('svg', {viewBox: `0 0 ${this.length} ${HEIGHT}`, preserveAspectRatio: 'none', 'aria-hidden': 'true'});
    this.up = make('path', {class: 'up'});
    this.down = make('path', {class: 'down'});
    this.line = make('path', {class: 'line'});
    this.axis = make('path', {class: 'axis'});
    picture.append(this.up, this.down, this.line, this.axis);
    this.time = span < DAY ? timeOfDay : dayAndTime;
    this.top = element('span', {class: 'top'});
    this.bottom = element('span', {class: 'bottom'});
    this.tip = element('output', {class: 'tip', hidden: true});
    this.ticks = Array.from({length: TICKS}, () => element('time'));
    place.append(picture, this.top, this.bottom, this.tip);
    // Only keys write here: a screen reader would read each move of a pointer.
    this.said = element('p', {class: 'unseen', 'aria-live': 'polite'});
    place.after(element('div', {class: 'ticks', 'aria-hidden': 'true'}, ...this.ticks), this.said);
    place.tabIndex = 0;
    place.setAttribute('aria-keyshortcuts', 'ArrowLeft ArrowRight');
    place.addEventListener('keydown', event => this.#move(event));
    place.addEventListener('blur', () => this.#point(null));
    place.addEventListener('pointermove', event => this.#point(event.clientX));
    place.addEventListener('pointerleave', () => this.#point(null));
    this.#draw();
  }

  /** Adds a sample, `up` and `down`, of a time in epoch seconds; null if it is unknown. The axis ends there. */
  push(sample, at = Date.now() / 1000) {
    this.#end = at;
    if (sample) this.#samples.push({...sample, at});
    this.#samples = this.#samples.filter(one => one.at > at - this.span);
    this.#draw();
  }

  /** Adds samples of before the first one. */
  fill(samples) {
    const first = this.#samples[0]?.at ?? Infinity;
    this.#samples = [...samples.filter(({at}) => at < first), ...this.#samples];
    this.#draw();
  }

  clear() {
    this.#samples = [];
    this.#draw();
  }

  #draw() {
    const [up, down] = ['up', 'down'].map(name => ceiling(Math.max(this.least, ...this.#samples.map(sample => sample[name]))));
    // Both have one scale, and as much of the height as they need.
    const axis = HEIGHT * up / (up + down), scale = HEIGHT / (up + down);
    this.up.setAttribute('d', this.#bars(axis, sample => -sample.up * scale));
    this.down.setAttribute('d', this.#bars(axis, sample => sample.down * scale));
    this.axis.setAttribute('d', `M0 ${axis}H${this.length}`);
    for (const [label, most] of [[this.top, up], [this.bottom, down]]) {
      label.textContent = this.format(most);
      label.hidden = most < LABEL * (up + down);
    }
    this.ticks.forEach((tick, index) => {
      tick.textContent = this.time(this.#end - this.span * (1 - index / (TICKS - 1)));
    });
    this.#tell();
  }

  #bars(axis, heightOf) {
    return this.#samples.map(sample => {
      const height = heightOf(sample);
      return height ? `M${this.#place(sample)} ${axis}v${height.toFixed(2)}h.8V${axis}z` : '';
    }).join('');
  }

  /** The left edge of a bar. */
  #place({at}) {
    return (this.length - 0.9 - (this.#end - at) / this.step).toFixed(2);
  }

  #point(x) {
    const {left, width} = this.place.getBoundingClientRect();
    this.#pointed = x === null ? null : (x - left) / width;
    this.#picked = null;
    this.#tell();
  }

  #move(event) {
    const step = {ArrowLeft: -1, ArrowRight: 1}[event.key], last = this.#samples.length - 1;
    // With Alt, they are the browser's keys for back and forward.
    if (!step || last < 0 || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const from = this.#samples.indexOf(this.#near);
    this.#picked = this.#samples[from < 0 ? last : Math.min(last, Math.max(0, from + step))].at;
    this.#tell();
    this.said.textContent = this.tip.textContent;
  }

  get #near() {
    if (this.#picked !== null) return this.#samples.find(({at}) => at === this.#picked);
    if (this.#pointed === null) return undefined;
    const at = this.#end - (1 - this.#pointed) * this.span;
    return this.#samples.findLast(sample => Math.abs(sample.at - at) <= this.step);
  }

  #tell() {
    const near = this.#near;
    this.tip.hidden = !near;
    this.line.setAttribute('d', near ? `M${Number(this.#place(near)) + 0.4} 0V${HEIGHT}` : '');
    if (!near) return;
    const [up, down] = this.names;
    this.tip.textContent = `${this.time(near.at)}: ${this.format(near.up)} ${up}, ${this.format(near.down)} ${down}`;
    this.tip.classList.toggle('left', this.#end - near.at < this.span / 2);
  }
}

/** The next round number. */
function ceiling(number) {
  const step = 10 ** Math.floor(Math.log10(number));
  return [1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10].map(factor => factor * step).find(candidate => candidate >= number * 0.999);
}

function make(name, attributes) {
  const made = document.createElementNS(NAMESPACE, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}
