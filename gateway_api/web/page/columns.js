// The columns of a list that a user chooses. The browser remembers them; the page stores nothing else.

import {byId, element} from './elements.js';
import {button, drop} from './section.js';

export class Columns {
  #key;
  #all;
  #table;

  /** Puts a button before the export of the list `id`, whose `table` shows the `fixed` columns and those that the user has
      chosen: at first all but the `extra` ones. */
  constructor(id, columns, table) {
    this.#key = `columns of ${id}`;
    this.#all = columns;
    this.#table = table;
    const opener = button(`${id}-columns`, 'Columns', 'quiet drop');
    opener.setAttribute('popovertarget', `${id}-columns-menu`);
    const menu = element('div', {id: `${id}-columns-menu`, class: 'menu', popover: 'auto'});
    byId(`${id}-export`).before(opener, menu);
    drop(opener, menu, () => this.#fill(menu));
    this.#draw();
  }

  #fill(menu) {
    const narrow = matchMedia('(max-width: 46rem)').matches, remembered = this.#remembered;
    // A small screen hides the wide ones of those that nobody has chosen.
    const shown = this.#shown(remembered).filter(({look = ''}) => remembered || !narrow || !look.includes('wide'));
    this.boxes = this.#all.filter(({fixed}) => !fixed).map(column => [column.field, element('input', {type: 'checkbox', checked: shown.includes(column), onchange: () => this.#choose()}), column.title]);
    menu.replaceChildren(
      element('fieldset', {}, element('legend', {text: 'Columns'}), ...this.boxes.map(([, box, title]) => element('label', {}, box, ` ${title}`))),
      element('button', {type: 'button', class: 'quiet', text: 'As at first', onclick: () => this.#forget(menu)}));
  }

  #choose() {
    const chosen = this.boxes.filter(([, box]) => box.checked).map(([field]) => field);
    this.#store(JSON.stringify(chosen));
    this.#draw(chosen);
  }

  #forget(menu) {
    this.#store(null);
    this.#draw();
    menu.hidePopover();
  }

  #draw(chosen = this.#remembered) {
    const shown = this.#shown(chosen);
    // A chosen column is shown on a small screen, too.
    this.#table.choose(chosen ? shown.map(column => ({...column, look: column.look?.replace('wide', '')})) : shown);
  }

  #shown(chosen) {
    return this.#all.filter(({field, fixed, extra}) => fixed || (chosen ? chosen.includes(field) : !extra));
  }

  /** Null without a choice. */
  get #remembered() {
    try {
      const chosen = JSON.parse(localStorage.getItem(this.#key));
      return Array.isArray(chosen) ? chosen : null;
    } catch {
      // The browser stores nothing, or another program has written there.
      return null;
    }
  }

  #store(text) {
    try {
      if (text === null) localStorage.removeItem(this.#key);
      else localStorage.setItem(this.#key, text);
    } catch {
      // The browser stores nothing: the choice lasts until the page is closed.
    }
  }
}
