// A form of filters above a list. What it says is in the query of the URL.

import {element} from './elements.js';
import {isoTime, localTime} from './format.js';
import {choices, whenRead} from './schema.js';
import {field, folding, offer, textInput} from './section.js';
import * as views from './views.js';

export class Filters {
  #view;
  #fields;
  #tell;

  /** Builds the form in `place`, for the list at `path`. A field has `name` (of the API's parameter), `label`, and either
      `choice` (see `choice`) or `time`, or takes any text. */
  constructor(api, place, {view, path, fields}) {
    this.#view = view;
    this.#fields = fields.map(one => ({...one, ...control(api, view, path, one)}));
    const form = element('form', {class: 'find panel', role: 'search', 'aria-label': 'Filters'},
      ...this.#fields.map(({label, input}) => field(label, input, 'folds')),
      element('button', {type: 'submit', class: 'folds', text: 'Filter'}));
    this.#tell = folding(form);
    form.addEventListener('submit', event => {
      event.preventDefault();
      this.#apply();
    });
    form.addEventListener('change', event => event.target.matches('select') && this.#apply());
    place.append(form);
  }

  show(query) {
    this.#tell(this.#fields.filter(({name}) => query.get(name)).length);
    for (const {name, show} of this.#fields) show(query.get(name) ?? '');
  }

  #apply() {
    const given = this.#fields.map(({name, time, input}) => [name, time && input.value ? isoTime(input.value) : input.value.trim()]);
    views.go(this.#view, {...Object.fromEntries(given), sort: views.place().query.get('sort')});
  }
}

function control(api, view, path, {name, choice: chooses, time}) {
  const id = `${view}-${name}`;
  if (chooses) return choice(api, {id, view, path, name});
  const input = textInput(id, {type: time ? 'datetime-local' : 'text', maxlength: 256});
  return {input, show: value => { input.value = time && value ? localTime(value) : value; }};
}

/** A select, `input`, of the values that a parameter takes, as the OpenAPI document lists and `titles` spells them. It offers
    the value that it shows, too: the API may not know it, or the page not have read the document yet. */
export function choice(api, {id, view, path, name, titles = () => ({})}) {
  const input = element('select', {id});
  let values = [], texts = {}, chosen = '';
  const draw = () => offer(input, [...new Set(['', ...values, chosen])], chosen, value => (value ? texts[value] ?? value : 'All'));
  whenRead(api, view, openapi => {
    values = choices(openapi, path, name);
    texts = titles(openapi);
    draw();
  });
  return {input, show: value => {
    chosen = value;
    draw();
    input.value = value;
  }};
}
