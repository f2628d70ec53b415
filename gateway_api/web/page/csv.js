// A list of the API as a file (RFC 4180).

import {element} from './elements.js';
import {count} from './format.js';
import {toast} from './toasts.js';

/** Saves all records that match `query`, with all of their fields. A response has at most `most` of them. */
export async function save(api, name, path, records, query, most) {
  const lines = [];
  let cursor = null, fields = null;
  do {
    const page = await api.get(path, {...query, limit: most, cursor});
    for (const record of page[records]) {
      if (!fields) lines.push(line(fields = Object.keys(record)));
      lines.push(line(fields.map(field => record[field])));
    }
    cursor = page.next_cursor;
  } while (cursor);
  const url = URL.createObjectURL(new Blob(lines, {type: 'text/csv'}));
  element('a', {href: url, download: `${name}-${new Date().toISOString().replaceAll(':', '')}.csv`}).click();
  // The browser has begun to read it by then.
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
  toast(`Exported ${count(Math.max(0, lines.length - 1))} records.`);
}

const line = values => `${values.map(cell).join(',')}\r\n`;

function cell(value) {
  if (value === null || value === undefined) return '';
  if (typeof value === 'number') return String(value);
  const text = typeof value === 'object' ? JSON.stringify(value) : String(value);
  // Subscribers choose their names, and spreadsheets run a text that begins like a formula.
  const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  // Many programs remove spaces at the ends of a cell without quotes.
  return /[",\r\n]|^\s|\s$/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}
