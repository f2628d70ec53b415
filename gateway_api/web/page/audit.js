// The audit log.

import {element} from './elements.js';
import {moment} from './format.js';
import {ListView} from './listview.js';

export const audit = api => new ListView(api, {
  view: 'audit', heading: 'Audit', id: 'audit-list', title: 'Audit log', path: '/audit', records: 'records', sort: null,
  fields: [
    {name: 'user', label: 'User'}, {name: 'action', label: 'Action'},
    {name: 'result', label: 'Result', choice: true},
    {name: 'since', label: 'Since (your time zone)', time: true}, {name: 'until', label: 'Until (your time zone)', time: true},
  ],
  columns: [
    {field: 'at', title: 'Time', look: 'time', show: ({at}) => moment(at)},
    {field: 'user', title: 'User', show: ({user, role}) => user ?? role ?? 'unknown'},
    {field: 'result', title: 'Result', show: ({result, status}) => (status ? `${result}, ${status}` : result), look: 'wide'},
    {field: 'address', title: 'Address', look: 'wide'},
    {field: 'action', title: 'Action', look: 'text', show: record => details(record)},
  ],
});

/** What a record says besides the columns, in one element that opens. */
function details(record) {
  const {action, path, message, request_id: request, body, before, after, count, last_at: last} = record;
  const latest = last && moment(last);
  const title = [action, message].filter(Boolean).join(': ') || 'unknown';
  const parts = Object.entries({request, path, message, latest, body, before, after}).filter(([, value]) => value != null && value !== '');
  return element('details', {}, element('summary', {text: count > 1 ? `${title} (${count} times)` : title}),
    element('dl', {class: 'fields'}, ...parts.map(([name, value]) => element('div', {}, element('dt', {text: name}),
      element('dd', {text: typeof value === 'string' ? value : JSON.stringify(value, null, 2), class: 'code'})))));
}
