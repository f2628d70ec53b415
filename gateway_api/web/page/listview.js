// A view that is one list and its filters. They are built when it is shown for the first time.

import {element} from './elements.js';
import {Filters} from './filters.js';
import {Listing} from './listing.js';
import {viewSection} from './section.js';

export class ListView {
  #build;

  /** `spec` is that of Listing, with `fields` of Filters in place of `filters`, the `heading` of the view, and elements
      that are `before` the list. */
  constructor(api, {fields, heading, before = [], ...spec}) {
    const section = viewSection(spec.view, heading, ...before);
    this.#build = () => {
      if (fields.length) this.filters = new Filters(api, section, {...spec, fields});
      const panel = element('section', {class: 'panel'});
      section.append(panel);
      this.list = new Listing(api, panel, {...spec, filters: fields.map(({name}) => name)});
    };
  }

  show(query) {
    if (!this.list) this.#build();
    this.filters?.show(query);
    this.list.show(query);
  }
}
