/**
 * A double of the endpoints of Stripe that Farebox calls. Stripe cannot be reached in tests, so these
 * objects are written from the types of the `stripe` library and the published API reference; each one
 * has the members that Farebox or the library reads. Events are signed with the library's own
 * `generateTestHeaderString`. `payments.stripe.apiUrl` points the library at this server.
 *
 * The double keeps all money that a test moves, so that a test can compare it with the ledger.
 */
import { type IncomingMessage, type Server, type ServerResponse, createServer } from 'node:http';
import { endServer, listen } from './loopback.ts';
import { text } from 'node:stream/consumers';
import { Stripe } from 'stripe';

export const STRIPE_KEY = 'sk_test_double';
export const STRIPE_WEBHOOK_SECRET = 'whsec_double';

const DISPUTE_FEE_CENTS = 1_500;

type Json = Record<string, unknown>;
type Fate = 'pass' | 'lose-request' | 'lose-reply' | 'error';

export interface Intent extends Json {
  id: string;
  amount: number;
  amount_received: number;
  created: number;
  currency: string;
  status: string;
  metadata: Record<string, string>;
  customer: string | null;
  payment_method: string | null;
  latest_charge: Json | null;
}

export interface Session extends Json {
  id: string;
  url: string;
  created: number;
  status: 'open' | 'complete' | 'expired';
  payment_intent: string | null;
  success_url: string;
  cancel_url: string;
  amount_total: number;
  metadata: Record<string, string>;
}

interface Refund extends Json {
  id: string;
  amount: number;
  status: string;
  payment_intent: string;
}

interface Dispute extends Json {
  id: string;
  amount: number;
  status: string;
  payment_intent: string;
}

export interface StripeEvent extends Json {
  id: string;
  type: string;
  created: number;
}

interface Stored {
  readonly params: string;
  readonly status: number;
  readonly body: unknown;
}

export class StripeDouble {
  readonly url: string;
  readonly sessions = new Map<string, Session>();
  readonly intents = new Map<string, Intent>();
  readonly refunds: Refund[] = [];
  readonly disputes: Dispute[] = [];
  readonly events: StripeEvent[] = [];
  /** Saved cards that were deleted. */
  readonly detached: string[] = [];
  /** Requests as `POST /v1/refunds`, in the order of their arrival. */
  readonly requests: string[] = [];
  /** Decides what happens to a request. */
  fate: (request: string) => Fate = () => 'pass';
  /** Tax on a page with automatic tax, in percent. */
  taxPercent = 20;
  /** Called with each new event; a test delivers it or not. */
  onEvent: (event: StripeEvent) => void = () => undefined;
  /** The currency of the operator's balance. */
  balanceCurrency = 'usd';
  /** Whether the key may read the balance, and so expand the balance transactions of others. */
  canReadBalance = true;
  /** Payers that were deleted, or that belong to another Stripe account. */
  readonly missingCustomers = new Set<unknown>();
  /** Decline code of charges of saved cards. */
  declines: string | undefined;
  readonly #server: Server;
  readonly #idempotent = new Map<string, Stored>();
  #count = 0;

  private constructor(server: Server, port: number) {
    this.#server = server;
    this.url = `http://127.0.0.1:${port}`;
    server.on('request', (request, response) => void this.#serve(request, response));
  }

  static async start(): Promise<StripeDouble> {
    const server = createServer();
    return new StripeDouble(server, await listen(server));
  }

  stop(): Promise<void> {
    return endServer(this.#server);
  }

  /** The `payments.stripe` section for this double. */
  yaml(more = ''): string {
    return `stripe: { secretKey: ${STRIPE_KEY}, webhookSecret: ${STRIPE_WEBHOOK_SECRET}, apiUrl: "${this.url}"${more} }`;
  }

  /** Money that payers have paid and that is not returned, without taxes, in cents, by row of Farebox. */
  kept(): Map<string, number> {
    const sums = new Map<string, number>();
    for (const intent of this.intents.values()) {
      if (intent.status !== 'succeeded') continue;
      const returned = [
        ...this.refunds.filter((one) => one.status !== 'failed'),
        ...this.disputes.filter((one) => !['won', 'warning_needs_response'].includes(one.status)),
      ].filter((one) => one.payment_intent === intent.id);
      const cents = intent.amount_received - returned.reduce((sum, { amount }) => sum + amount, 0);
      const id = intent.metadata['farebox_payment'] ?? '';
      sums.set(id, (sums.get(id) ?? 0) + cents);
    }
    return sums;
  }

  /** Fees that Stripe has kept, in cents, by row of Farebox. */
  fees(): Map<string, number> {
    const sums = new Map<string, number>();
    for (const intent of this.intents.values()) {
      if (intent.status !== 'succeeded') continue;
      const balance = [
        intent.latest_charge?.['balance_transaction'],
        ...this.disputes
          .filter((one) => one.payment_intent === intent.id)
          .flatMap((one) => one['balance_transactions']),
      ] as (Json | null)[];
      const cents = balance.reduce((sum, one) => sum + Number(one?.['fee'] ?? 0), 0);
      const id = intent.metadata['farebox_payment'] ?? '';
      sums.set(id, (sums.get(id) ?? 0) + cents);
    }
    return sums;
  }

  /** A movement of the operator's balance at Stripe. */
  #balance(amount: number, fee: number): Json {
    const currency = this.balanceCurrency;
    return { id: this.#id('txn'), object: 'balance_transaction', amount, fee, currency };
  }

  session(id: string): Session {
    const session = this.sessions.get(id);
    if (session === undefined) throw new Error(`There is no session ${id}`);
    return session;
  }

  /** The session of a row of Farebox. */
  sessionOf(paymentId: string): Session | undefined {
    return [...this.sessions.values()].find((one) => one['client_reference_id'] === paymentId);
  }

  /** The payer pays on the page. `isDelayed`: by a method whose bank decides later. */
  pay(sessionId: string, { isDelayed = false } = {}): Intent {
    const session = this.session(sessionId);
    if (session.status !== 'open') throw new Error('The page is no longer open');
    const savesCard = session['setup_future_usage'] === 'off_session';
    const intent = this.#newIntent({
      amount: session.amount_total,
      metadata: session.metadata,
      customer: savesCard ? this.#id('cus') : null,
      setup_future_usage: savesCard ? 'off_session' : null,
    });
    session.status = 'complete';
    session.payment_intent = intent.id;
    session['payment_status'] = isDelayed ? 'unpaid' : 'paid';
    if (isDelayed) intent.status = 'processing';
    else this.#succeed(intent);
    this.#emit('checkout.session.completed', session);
    return intent;
  }

  /** The bank decides about a delayed payment. */
  decide(intent: Intent, isPaid: boolean): void {
    const session = [...this.sessions.values()].find((one) => one.payment_intent === intent.id);
    if (session === undefined) throw new Error('The payment has no page');
    if (isPaid) this.#succeed(intent);
    else this.#decline(intent, 'debit_not_authorized');
    this.#emit(`checkout.session.async_payment_${isPaid ? 'succeeded' : 'failed'}`, session);
  }

  expire(sessionId: string): void {
    const session = this.session(sessionId);
    session.status = 'expired';
    this.#emit('checkout.session.expired', session);
  }

  /** The operator refunds in Stripe's dashboard. */
  refundByHand(intent: Intent, cents: number): void {
    this.#refund({ payment_intent: intent.id, amount: cents, metadata: {} });
  }

  /** The bank of the payer returns a refund. */
  failRefund(id: string): void {
    const refund = this.refunds.find((one) => one.id === id);
    if (refund === undefined) throw new Error(`There is no refund ${id}`);
    refund.status = 'failed';
    refund['failure_reason'] = 'lost_or_stolen_card';
    this.#emit('refund.failed', refund);
  }

  dispute(intent: Intent, cents = intent.amount, status = 'needs_response'): Dispute {
    const dispute: Dispute = {
      id: this.#id('dp'),
      object: 'dispute',
      amount: cents,
      currency: intent.currency,
      created: now(),
      metadata: {},
      payment_intent: intent.id,
      status,
      balance_transactions:
        status === 'needs_response' ? [this.#balance(-cents, DISPUTE_FEE_CENTS)] : [],
    };
    this.disputes.push(dispute);
    this.#emit('charge.dispute.created', dispute);
    return dispute;
  }

  closeDispute(dispute: Dispute, isWon: boolean): void {
    dispute.status = isWon ? 'won' : 'lost';
    if (isWon) {
      const changes = dispute['balance_transactions'] as Json[];
      changes.push(this.#balance(dispute.amount, -DISPUTE_FEE_CENTS));
    }
    this.#emit('charge.dispute.closed', dispute);
  }

  /** Delivers an event; returns the status of the response, or 0 without a response. */
  async deliver(
    event: StripeEvent,
    baseUrl: string,
    { secret = STRIPE_WEBHOOK_SECRET, timestamp = now() } = {},
  ): Promise<number> {
    const payload = JSON.stringify(event);
    const signature = Stripe.webhooks.generateTestHeaderString({ payload, secret, timestamp });
    try {
      const response = await fetch(`${baseUrl}/payments/stripe`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', 'stripe-signature': signature },
        body: payload,
      });
      await response.text();
      return response.status;
    } catch {
      return 0; // the server is gone
    }
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const url = new URL(request.url ?? '/', this.url);
    const body = await text(request);
    const name = `${request.method} ${url.pathname}`;
    if (url.pathname.startsWith('/pay/')) return this.#servePage(url, request, response);
    this.requests.push(name);
    const fate = this.fate(name);
    if (fate === 'lose-request') return void request.socket.destroy();
    const [status, result] =
      fate === 'error'
        ? [500, { error: { type: 'api_error', message: 'An error of the double' } }]
        : this.#idempotently(request, name, url, body);
    if (fate === 'lose-reply') return void request.socket.destroy();
    response.writeHead(status, { 'content-type': 'application/json', 'request-id': 'req_double' });
    response.end(JSON.stringify(result));
  }

  /** The page of a session, for a browser. */
  #servePage(url: URL, request: IncomingMessage, response: ServerResponse): void {
    const session = this.session(url.pathname.slice('/pay/'.length));
    if (request.method === 'POST') {
      this.pay(session.id);
      response.writeHead(303, { location: session.success_url }).end();
      return;
    }
    response.writeHead(200, { 'content-type': 'text/html' });
    response.end(
      `<title>Pay</title><form method="post"><button>Pay $${session.amount_total / 100}</button></form><a href="${session.cancel_url}">Back</a>`,
    );
  }

  #idempotently(
    { headers, method }: IncomingMessage,
    name: string,
    url: URL,
    body: string,
  ): [number, unknown] {
    if (headers.authorization !== `Bearer ${STRIPE_KEY}`) {
      return [401, { error: { type: 'invalid_request_error', message: 'Invalid API Key' } }];
    }
    const key = headers['idempotency-key'];
    const stored = typeof key === 'string' ? this.#idempotent.get(key) : undefined;
    if (stored !== undefined) {
      if (stored.params === name + body) return [stored.status, stored.body];
      const message = 'Keys for idempotent requests can only be used with the same parameters';
      return [400, { error: { type: 'idempotency_error', message } }];
    }
    let status = 200;
    let result: unknown;
    try {
      const query = method === 'GET' ? decodeForm(url.search.slice(1)) : decodeForm(body);
      result = this.#route(name, query);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      status = error.status;
      result = { error: error.body };
    }
    // Stripe stores the response as it was, not the object, which may change.
    const frozen: unknown = JSON.parse(JSON.stringify(result));
    if (typeof key === 'string' && method === 'POST') {
      this.#idempotent.set(key, { params: name + body, status, body: frozen });
    }
    return [status, frozen];
  }

  /** Deletes the idempotency keys, as Stripe does after a day. */
  deleteKeys(): void {
    this.#idempotent.clear();
  }

  #route(name: string, query: Json): unknown {
    const [, resource = '', id = '', action = ''] =
      /^(?:GET|POST) \/v1\/(checkout\/sessions|\w+)(?:\/(\w+))?(?:\/(\w+))?$/.exec(name) ?? [];
    const isPost = name.startsWith('POST');
    const expanding = Object.values((query['expand'] ?? {}) as Json).join(' ');
    if (!this.canReadBalance && expanding.includes('balance_transaction')) {
      const message = 'The provided key does not have the required permissions for this endpoint';
      throw new ApiError(403, { type: 'invalid_request_error', message });
    }
    const { customer } = query;
    if (this.missingCustomers.has(customer)) {
      const message = `No such customer: '${String(customer)}'`;
      const type = 'invalid_request_error';
      throw new ApiError(400, { type, code: 'resource_missing', param: 'customer', message });
    }
    switch (resource) {
      case 'checkout/sessions':
        if (isPost) return this.#newSession(query);
        return id === '' ? list([...this.sessions.values()], query) : found(this.sessions.get(id));
      case 'payment_intents':
        if (action === 'cancel') return this.#cancel(found(this.intents.get(id)));
        if (isPost) return this.#chargeSaved(query);
        if (id === '') return list([...this.intents.values()], query);
        return expanded(found(this.intents.get(id)), query);
      case 'payment_methods':
        this.detached.push(id);
        return { id, object: 'payment_method', customer: null };
      case 'refunds':
        if (isPost) return this.#refund(query);
        return list(this.refunds, query);
      case 'disputes':
        return list(this.disputes, query);
      case 'events':
        return list(this.events, query);
      default:
        throw new ApiError(404, { type: 'invalid_request_error', message: `No route ${name}` });
    }
  }

  #newSession(query: Json): Session {
    const { line_items, payment_intent_data, automatic_tax, metadata = {} } = query;
    const item = (line_items as Json)['0'] as { price_data: { unit_amount: string } };
    const subtotal = Number(item.price_data.unit_amount);
    const isTaxed = (automatic_tax as Json)['enabled'] === 'true';
    const id = this.#id('cs_test');
    const session: Session = {
      ...query,
      id,
      object: 'checkout.session',
      created: now(),
      currency: 'usd',
      amount_subtotal: subtotal,
      amount_total: subtotal + (isTaxed ? Math.round((subtotal * this.taxPercent) / 100) : 0),
      metadata: metadata as Record<string, string>,
      mode: 'payment',
      payment_intent: null,
      payment_status: 'unpaid',
      setup_future_usage: (payment_intent_data as Json)['setup_future_usage'] ?? null,
      status: 'open',
      success_url: String(query['success_url']),
      cancel_url: String(query['cancel_url']),
      url: `${this.url}/pay/${id}`,
    };
    this.sessions.set(id, session);
    return session;
  }

  #newIntent(given: Partial<Intent>): Intent {
    const intent: Intent = {
      object: 'payment_intent',
      amount: 0,
      currency: 'usd',
      created: now(),
      status: 'requires_payment_method',
      metadata: {},
      customer: null,
      last_payment_error: null,
      setup_future_usage: null,
      ...given,
      id: this.#id('pi'),
      amount_received: 0,
      payment_method: this.#id('pm'),
      latest_charge: null,
    };
    this.intents.set(intent.id, intent);
    return intent;
  }

  #succeed(intent: Intent): void {
    intent.status = 'succeeded';
    intent.amount_received = intent.amount;
    intent.latest_charge = {
      id: this.#id('ch'),
      object: 'charge',
      amount: intent.amount,
      balance_transaction: this.#balance(intent.amount, Math.round(intent.amount * 0.029) + 30),
      metadata: intent.metadata,
      payment_intent: intent.id,
      payment_method_details: { type: 'card', card: { brand: 'visa', last4: '4242' } },
      receipt_url: `https://pay.stripe.com/receipts/${intent.id}`,
    };
    this.#emit('payment_intent.succeeded', intent);
  }

  #decline(intent: Intent, code: string): void {
    intent.status = 'requires_payment_method';
    intent['last_payment_error'] = {
      type: 'card_error',
      code: 'card_declined',
      decline_code: code,
    };
    this.#emit('payment_intent.payment_failed', intent);
  }

  #chargeSaved(query: Json): Intent {
    const intent = this.#newIntent({
      amount: Number(query['amount']),
      metadata: query['metadata'] as Record<string, string>,
      customer: String(query['customer']),
    });
    intent.payment_method = String(query['payment_method']);
    if (this.declines === undefined) {
      this.#succeed(intent);
      return intent;
    }
    this.#decline(intent, this.declines);
    throw new ApiError(402, {
      type: 'card_error',
      code: 'card_declined',
      decline_code: this.declines,
      message: 'Your card was declined.',
      payment_intent: intent,
    });
  }

  #cancel(intent: Intent): Intent {
    if (intent.status === 'succeeded') {
      throw new ApiError(400, { type: 'invalid_request_error', message: 'Already succeeded' });
    }
    intent.status = 'canceled';
    return intent;
  }

  #refund(query: Json): Refund {
    const intent = found(this.intents.get(String(query['payment_intent'])));
    const amount = Number(query['amount']);
    const sum = this.refunds
      .filter((one) => one.payment_intent === intent.id && one.status !== 'failed')
      .reduce((all, one) => all + one.amount, 0);
    const isDisputed = this.disputes.some(
      (one) => one.payment_intent === intent.id && one.status !== 'won',
    );
    if (isDisputed || sum + amount > intent.amount_received || !(amount > 0)) {
      const message = `Refund amount (${amount}) is greater than unrefunded amount on charge`;
      throw new ApiError(400, { type: 'invalid_request_error', message });
    }
    const refund: Refund = {
      id: this.#id('re'),
      object: 'refund',
      amount,
      created: now(),
      currency: 'usd',
      metadata: query['metadata'] ?? {},
      payment_intent: intent.id,
      balance_transaction: this.#balance(-amount, 0),
      status: 'succeeded',
    };
    this.refunds.push(refund);
    this.#emit('charge.refunded', { ...intent.latest_charge, amount_refunded: sum + amount });
    return refund;
  }

  #emit(type: string, object: Json): void {
    const copy: unknown = JSON.parse(JSON.stringify(object));
    const event = {
      id: this.#id('evt'),
      object: 'event',
      api_version: Stripe.API_VERSION,
      created: now(),
      type,
      data: { object: copy },
    };
    this.events.push(event);
    this.onEvent(event);
  }

  #id(prefix: string): string {
    this.#count += 1;
    return `${prefix}_${String(this.#count).padStart(6, '0')}`;
  }
}

class ApiError extends Error {
  readonly status: number;
  readonly body: Json;

  constructor(status: number, body: Json) {
    super(String(body['message']));
    this.status = status;
    this.body = body;
  }
}

/** A payment with its card, if the request expands it. */
function expanded(intent: Intent, { expand = {} }: Json): Json {
  if (!Object.values(expand as Json).includes('payment_method')) return intent;
  const card = { brand: 'visa', last4: '4242' };
  const payment_method = {
    id: intent.payment_method,
    object: 'payment_method',
    type: 'card',
    card,
  };
  return { ...intent, payment_method };
}

function found<T>(value: T | undefined): T {
  if (value !== undefined) return value;
  throw new ApiError(404, { type: 'invalid_request_error', message: 'No such object' });
}

function now(): number {
  return Math.floor(Date.now() / 1_000);
}

/** A page of a list, newest first, as Stripe returns it. */
function list(all: readonly Json[], query: Json): Json {
  const { created, payment_intent, customer, types, limit = 10, starting_after } = query;
  const { gte = 0, lte = Infinity } = (created ?? {}) as { gte?: string; lte?: string };
  const wanted =
    types === undefined ? undefined : new Set(Object.values(types as Record<string, string>));
  const matching = all
    .filter(
      (one) =>
        Number(one['created']) >= Number(gte) &&
        Number(one['created']) <= Number(lte) &&
        (payment_intent === undefined || one['payment_intent'] === payment_intent) &&
        (customer === undefined || one['customer'] === customer) &&
        (wanted === undefined || wanted.has(String(one['type']))),
    )
    .toReversed();
  const from =
    starting_after === undefined ? 0 : matching.findIndex(({ id }) => id === starting_after) + 1;
  const data = matching.slice(from, from + Number(limit));
  return { object: 'list', url: '/v1', data, has_more: from + data.length < matching.length };
}

/** Decodes `a[b][0]=c` to `{ a: { b: { 0: 'c' } } }`. */
function decodeForm(form: string): Json {
  const result: Json = {};
  for (const [name, value] of new URLSearchParams(form)) {
    const path = name.split(/[[\]]+/).filter((part) => part !== '');
    let at = result;
    for (const part of path.slice(0, -1)) at = (at[part] ??= {}) as Json;
    at[path.at(-1) ?? ''] = value;
  }
  return result;
}
