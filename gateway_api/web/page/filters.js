// A form of filters above a list. What it says is in the query of the URL.

import {element} from './elements.js';
import {isoTime, localTime} from './format.js';
import {field, folding, textInput} from './section.js';
import * as views from './views.js';

export class Filters {
  #view;
  #fields;
  #tell;

  /** Builds the form in `place`. A field has `name` (of the API's parameter), `label`, and either `options` or `time`, or
      takes any text. */
  constructor(place, view, fields) {
    this.#view = view;
    this.#fields = fields.map(one => ({...one, input: input(view, one)}));
    const form = element('form', {class: 'find panel', role: 'search', 'aria-label': 'Filters'},
      ...this.#fields.map(({label, input: made}) => field(label, made, 'folds')),
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
    for (const {name, time, input: made} of this.#fields) {
      const value = query.get(name) ?? '';
      made.value = time && value ? localTime(value) : value;
    }
  }

  #apply() {
    const given = this.#fields.map(({name, time, input: made}) => [name, time && made.value ? isoTime(made.value) : made.value.trim()]);
    views.go(this.#view, {...Object.fromEntries(given), sort: views.place().query.get('sort')});
  }
}

function input(view, {name, options, time}) {
  const id = `${view}-${name}`;
  if (!options) return textInput(id, {type: time ? 'datetime-local' : 'text', maxlength: 256});
  return element('select', {id}, element('option', {value: '', text: 'All'}), ...options.map(value => element('option', {value, text: value})));
}
