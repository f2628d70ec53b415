// One session: its current record, and the actions of an admin.

import {Refused} from './api.js';
import {ask} from './dialogs.js';
import {byId, complain, element, show, write} from './elements.js';
import {drawFields} from './fields.js';
import {finder} from './focus.js';
import {count, duration, faulty, moment, rateText, scaled, subscriber, timeOfDay, title, words} from './format.js';
import {LiveTraffic} from './livetraffic.js';
import {DOWN} from './messages.js';
import {shown} from './panel.js';
import {Poll} from './poll.js';
import {askRates} from './rates.js';
import {ADMIN, button, chartPlace, legend, problem} from './section.js';
import {Timeline} from './timeline.js';
import {toast} from './toasts.js';
import * as views from './views.js';

const SECONDS = 5;
const rates = (down, up) => `${rateText(down)}/s down, ${rateText(up)}/s up`;
const STALE = 'Stale: the source does not reply';
// The rows in words of the page: title, fields of the record, text, and the value to copy. A row without a text is left out.
const ROWS = [
  ['Session', ['id', 'session_type'], ({id, session_type: type}) => `${id}, ${type}`, ({id}) => String(id)],
  ['IP address', ['ip_address'], ({ip_address: address}) => address ?? 'none', session => session.ip_address],
  ['Gateway', ['gateway'], ({gateway}) => gateway ?? 'none'],
  ['IPv6 address', ['ipv6_address'], ({ipv6_address: address}) => address ?? 'none', session => session.ipv6_address],
  ['IPv6 prefix', ['ipv6_prefix'], ({ipv6_prefix: prefix}) => prefix ?? 'none'],
  ['Delegated prefixes', ['delegated_prefixes'], ({delegated_prefixes: prefixes}) => prefixes.join(', ') || 'none'],
  ['MAC address', ['mac_address'], ({mac_address: address}) => address ?? 'unknown', session => session.mac_address],
  ['Access interface', ['access_interface'], session => session.access_interface],
  ['VLAN', ['outer_vlan_id', 'inner_vlan_id'], ({outer_vlan_id: outer, inner_vlan_id: inner}) =>
    [outer, inner].filter(id => id !== null).join('.') || 'none'],
  ['PPP interface', ['ppp_interface'], session => session.ppp_interface || 'none'],
  ['Rate', ['rate_down_bps', 'rate_up_bps'], ({rate_down_bps: down, rate_up_bps: up}) => rates(down, up)],
  ['Rate until', ['rate_expires_at', 'former_rate_down_bps', 'former_rate_up_bps'],
    ({rate_expires_at: at, former_rate_down_bps: down, former_rate_up_bps: up}) => at && `${moment(at)}, then ${rates(down, up)}`],
  ['Traffic now', [], (session, {traffic}) => traffic],
  ['Downstream', ['bytes_out', 'packets_out'], ({bytes_out: bytes, packets_out: packets}) => `${scaled(bytes, 'B')}, ${count(packets)} packets`],
  ['Upstream', ['bytes_in', 'packets_in'], ({bytes_in: bytes, packets_in: packets}) => `${scaled(bytes, 'B')}, ${count(packets)} packets`],
  ['CGNAT', ['vrf_steered'], ({vrf_steered: steered}) => (steered ? 'yes' : 'no')],
  ['Overhead profile', ['overhead_profile'], session => session.overhead_profile],
  ['Accounting id', ['acct_session_id'], session => session.acct_session_id, session => session.acct_session_id],
  ['Source', ['source'], session => session.source],
  ['Online since', ['started_at'], ({started_at: at}, {now}) => `${moment(at)}, ${duration(now - at)}`],
];
// Fields with a row above, or elsewhere in the panel. Any other field of the record has a row with its name.
const DRAWN = new Set([...ROWS.flatMap(([, fields]) => fields), 'username', 'state', 'faults']);

/** Emits `read`: its `detail` is the session's current record. */
export class SessionRecord extends EventTarget {
  #id = null;
  #session = null;
  #rates = 'measuring';
  #timeline;
  #traffic;
  #ended = false;

  /** Builds the panel after `neighbour`. */
  constructor(api, stream, neighbour) {
    super();
    this.api = api;
    neighbour.after(element('section', {id: 'record', class: 'panel', 'aria-labelledby': 'record-title', hidden: true},
      element('h2', {id: 'record-title', tabindex: '-1'}), problem('record-problem'),
      element('p', {id: 'record-state', class: 'state', role: 'status'}),
      element('p', {class: 'actions'}, button('change-rate', 'Change rate…', '', ADMIN), button('disconnect', 'Disconnect…', 'danger', ADMIN),
        button('record-close', 'Close', 'quiet closes')),
      legend(['up', 'Downstream'], ['down', 'Upstream']), chartPlace('record', 'Traffic of this session in the last five minutes'),
      element('dl', {id: 'record-fields', class: 'fields'}), problem('timeline-problem'),
      element('ol', {id: 'record-timeline', class: 'timeline', 'aria-label': 'Timeline', hidden: true})));
    this.#timeline = new Timeline(api);
    this.#traffic = new LiveTraffic(api);
    this.#traffic.addEventListener('rates', ({detail}) => {
      this.#rates = detail;
      if (this.#session) this.#draw();
    });
    this.poll = new Poll(SECONDS, () => this.#read(), ['subscribers']);
    byId('record-close').addEventListener('click', () => {
      views.amend({open: null});
      const opener = this.opener();
      (opener?.checkVisibility() ? opener : byId('find-text')).focus();
    });
    byId('change-rate').addEventListener('click', () => this.#askRate());
    byId('disconnect').addEventListener('click', () => this.#askDisconnect());
    stream.addEventListener('events', ({detail}) => {
      const end = detail.find(({name, data}) => name === DOWN && data.id === this.#id);
      if (end) this.#end(`Ended at ${timeOfDay(end.data.at)}: ${words(end.data.reason)}`);
    });
  }

  /** Shows the session with an id, if it is not shown already. */
  async open(id) {
    if (id === this.#id) return;
    this.opener = finder(document.activeElement);
    this.outcome = 'Active';
    this.#id = id;
    this.#session = null;
    this.#rates = 'measuring';
    this.#ended = false;
    byId('record-fields').replaceChildren();
    complain(byId('record-problem'));
    write('record-title', `Session ${id}`);
    this.#state('idle', 'Loading');
    show('record', true);
    byId('record-title').focus();
    this.#timeline.open(id);
    this.#traffic.follow(id);
    await this.poll.now();
  }

  /** Hides the record, for example before another search. */
  dismiss() {
    this.#id = null;
    this.#timeline.open(null);
    show('record', false);
    this.#traffic.follow(null);
  }

  async #read() {
    const id = this.#id;
    if (id === null || this.#ended) return;
    await shown('record-problem', async () => {
      const session = await this.#found(id);
      if (id !== this.#id || this.#ended) return;
      if (!session) return this.#end('Ended');
      this.#session = session;
      this.#draw();
      this.dispatchEvent(new CustomEvent('read', {detail: session}));
    });
  }

  /** Null if it has ended: its event may be lost. */
  async #found(id) {
    try {
      return await this.api.poll(`/subscribers/${id}`);
    } catch (error) {
      if (error instanceof Refused && error.status === 404) return null;
      throw error;
    }
  }

  #draw() {
    const session = this.#session;
    write('record-title', session.username);
    if (!this.#ended) this.#state(...(session.state === 'stale' ? ['idle', STALE] : ['good', this.outcome]));
    const about = {traffic: this.#rates, now: this.api.now()};
    drawFields(byId('record-fields'), [
      ...session.faults.map(fault => ({name: 'Fault', text: this.#fault(fault), look: 'problem'})),
      ...ROWS.map(([name, , text, copy]) => ({name, text: text(session, about), copy: copy?.(session)})).filter(({text}) => text),
      ...Object.entries(session).filter(([field]) => !DRAWN.has(field)).map(([field, value]) => ({name: title(field), text: `${value ?? 'none'}`})),
    ]);
  }

  #fault({kind, object, reason, since}) {
    return `${faulty(kind, object)}, for ${duration(this.api.now() - since)}: ${reason}`;
  }

  #state(level, text) {
    byId('record-state').className = `state ${level}`;
    write('record-state', text);
    for (const id of ['change-rate', 'disconnect']) byId(id).disabled = this.#ended || !this.#session;
  }

  #end(text) {
    this.#ended = true;
    this.#rates = 'none';
    this.#traffic.follow(null);
    this.#timeline.poll.now();
    this.#state('bad', text);
  }

  #askRate() {
    const {id, rate_down_bps: down, rate_up_bps: up, username} = this.#session, who = subscriber(this.#session);
    askRates({
      title: `Change rate of ${username}`, help: `The change of session ${id} (${who}) takes effect at once.`, button: 'Change rate',
      down: rateText(down), up: rateText(up),
    }, async body => {
      const {data} = await this.api.ask('PUT', `/subscribers/${id}/rate`, {body});
      this.outcome = data.message;
      toast(`${data.message}: ${who}`);
      this.poll.now();
      this.#timeline.poll.now();
    });
  }

  #askDisconnect() {
    const {id, username, ip_address: address, ipv6_address: other, mac_address: mac} = this.#session, who = subscriber(this.#session);
    const known = [`session ${id}`, address ?? other, mac].filter(Boolean).join(', ');
    write('disconnect-text', `${username} (${known}) is disconnected at once.`);
    ask('disconnect-dialog', async () => {
      const {data} = await this.api.ask('DELETE', `/subscribers/${id}`);
      return () => {
        // The event shows the same later.
        if (!this.#ended) this.#end(data.message);
        toast(`${data.message}: ${who}`);
        byId('record-close').focus();
      };
    });
  }
}
