// Two opposite quantities over time: one goes up from the axis, the other down, on one scale.

const NAMESPACE = 'http://www.w3.org/2000/svg';
const HALF = 100;

export class Chart {
  #samples = [];

  /** Shows the last `length` samples in `place`. `format` formats the end of the scale, which is at least `least`. */
  constructor(place, {length, format, least}) {
    this.length = length;
    this.format = format;
    this.least = least;
    const picture = make('svg', {viewBox: `0 0 ${length} ${2 * HALF}`, preserveAspectRatio: 'none', 'aria-hidden': 'true'});
    this.up = make('path', {class: 'up'});
    this.down = make('path', {class: 'down'});
    picture.append(this.up, this.down, make('path', {class: 'axis', d: `M0 ${HALF}H${length}`}));
    this.top = document.createElement('span');
    this.bottom = document.createElement('span');
    place.append(picture, this.top, this.bottom);
    this.#draw();
  }

  /** Adds a sample; null if it is unknown. */
  push(sample) {
    this.#samples.push(sample);
    if (this.#samples.length > this.length) this.#samples.shift();
    this.#draw();
  }

  #draw() {
    const known = this.#samples.filter(Boolean).flatMap(({up, down}) => [up, down]);
    const most = ceiling(Math.max(this.least, ...known));
    this.up.setAttribute('d', this.#bars(({up}) => -up / most));
    this.down.setAttribute('d', this.#bars(({down}) => down / most));
    this.top.textContent = this.bottom.textContent = this.format(most);
  }

  #bars(share) {
    const first = this.length - this.#samples.length;
    return this.#samples.map((sample, index) => {
      const height = sample ? share(sample) * HALF : 0;
      return height ? `M${first + index + 0.1} ${HALF}v${height.toFixed(2)}h.8V${HALF}z` : '';
    }).join('');
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
