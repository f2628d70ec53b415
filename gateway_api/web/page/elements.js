// Elements of the document. Data becomes text only, never HTML: subscribers choose their own names.

/** @type {(id: string) => any} */
export const byId = id => document.getElementById(id);

/** An element with properties (`class`, `text`, attributes, `on…` for listeners) and children. */
export function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key === 'text') made.textContent = value;
    else if (key.startsWith('on')) made.addEventListener(key.slice(2), value);
    else if (typeof value === 'boolean') made.toggleAttribute(key, value);
    else if (value != null) made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

/** Writes a changed text only: a screen reader would repeat an unchanged one. */
export function write(id, text) {
  const target = byId(id);
  if (target.textContent !== String(text)) target.textContent = text;
}

export function show(id, visible) {
  byId(id).hidden = !visible;
}

/** Shows an error; hides the element without one. */
export function complain(target, text = '') {
  if (target.textContent !== text) target.textContent = text;
  target.hidden = !text;
}

/** A row of a list of states: its level (`good`, `idle`, `bad`, `none`), name, state, and an optional note. */
export function stateRow(level, name, how, more = '') {
  return element('li', {class: `state ${level}`},
    element('span', {class: 'what', text: name}), element('span', {class: 'how', text: how}),
    ...(more ? [element('span', {class: 'note', text: more})] : []));
}
