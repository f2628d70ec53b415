// One session: its current record, and the actions of an admin.

import {Refused} from './api.js';
import {ask} from './dialogs.js';
import {byId, complain, element, show, write} from './elements.js';
import {drawFields} from './fields.js';
import {finder} from './focus.js';
import {count, duration, faulty, moment, rateText, scaled, timeOfDay, title, words} from './format.js';
import {LiveTraffic} from './livetraffic.js';
import {shown} from './panel.js';
import {Poll} from './poll.js';
import {askRates} from './rates.js';
import {ADMIN, button, chartPlace, legend, problem} from './section.js';
import {Timeline} from './timeline.js';
import {toast} from './toasts.js';
import * as views from './views.js';

const SECONDS = 5;
const rates = (down, up) => `${rateText(down)}/s down, ${rateText(up)}/s up`;
// Fields that have rows in words of the page, or stand elsewhere in the panel. Any other has a row with its name.
const SHOWN = new Set(`id session_type state username mac_address ip_address gateway access_interface ppp_interface rate_down_bps
  rate_up_bps overhead_profile vrf_steered acct_session_id started_at bytes_in bytes_out packets_in packets_out ipv6_address ipv6_prefix
  delegated_prefixes outer_vlan_id inner_vlan_id source faults rate_expires_at former_rate_down_bps former_rate_up_bps`.split(/\s+/));
const STALE = 'Stale: the source does not reply';

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
      const end = detail.find(({name, data}) => name === 'session_down' && data.id === this.#id);
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
    const rows = [
      ...session.faults.map(fault => ['Fault', this.#fault(fault), 'problem']),
      ['Session', `${session.id}, ${session.session_type}`, '', String(session.id)],
      ['IP address', session.ip_address ?? 'none', '', session.ip_address],
      ['Gateway', session.gateway ?? 'none'],
      ['IPv6 address', session.ipv6_address ?? 'none', '', session.ipv6_address],
      ['IPv6 prefix', session.ipv6_prefix ?? 'none'],
      ['Delegated prefixes', session.delegated_prefixes.join(', ') || 'none'],
      ['MAC address', session.mac_address ?? 'unknown', '', session.mac_address],
      ['Access interface', session.access_interface],
      ['VLAN', [session.outer_vlan_id, session.inner_vlan_id].filter(id => id !== null).join('.') || 'none'],
      ['PPP interface', session.ppp_interface || 'none'],
      ['Rate', rates(session.rate_down_bps, session.rate_up_bps)],
      ...(session.rate_expires_at ? [['Rate until', `${moment(session.rate_expires_at)}, then ${
        rates(session.former_rate_down_bps, session.former_rate_up_bps)}`]] : []),
      ['Traffic now', this.#rates],
      ['Downstream', `${scaled(session.bytes_out, 'B')}, ${count(session.packets_out)} packets`],
      ['Upstream', `${scaled(session.bytes_in, 'B')}, ${count(session.packets_in)} packets`],
      ['CGNAT', session.vrf_steered ? 'yes' : 'no'],
      ['Overhead profile', session.overhead_profile],
      ['Accounting id', session.acct_session_id, '', session.acct_session_id],
      ['Source', session.source],
      ...Object.entries(session).filter(([name]) => !SHOWN.has(name)).map(([name, value]) => [title(name), `${value ?? 'none'}`]),
      ['Online since', `${moment(session.started_at)}, ${duration(this.api.now() - session.started_at)}`],
    ];
    drawFields(byId('record-fields'), rows.map(([name, text, look, copy]) => ({name, text, look, copy})));
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
    const {id, rate_down_bps: down, rate_up_bps: up, username} = this.#session;
    askRates({
      title: `Change rate of ${username}`, help: 'The change takes effect at once.', button: 'Change rate',
      down: rateText(down), up: rateText(up),
    }, async body => {
      const {data} = await this.api.ask('PUT', `/subscribers/${id}/rate`, {body});
      this.outcome = data.message;
      toast(data.message);
      this.poll.now();
      this.#timeline.poll.now();
    });
  }

  #askDisconnect() {
    const {id, username} = this.#session;
    const address = this.#session.ip_address ?? this.#session.ipv6_address;
    write('disconnect-text', `${username} (${[`session ${id}`, address].filter(Boolean).join(', ')}) is disconnected at once.`);
    ask('disconnect-dialog', async () => {
      const {data} = await this.api.ask('DELETE', `/subscribers/${id}`);
      return () => {
        // The event shows the same later.
        if (!this.#ended) this.#end(data.message);
        toast(data.message);
        byId('record-close').focus();
      };
    });
  }
}
