/**
 * For tests: a small HTTP server around payments, with the three kinds of routes for wallets (top-
 * up, balance, a priced route).
 */
import { createServer } from 'node:http';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { endServer, listen } from './loopback.ts';
import { Fault } from '../../src/core/faults.ts';
import { formatUsd } from '../../src/core/money.ts';
import { balanceBody, topUpBody } from '../../src/wallet/x402/x402.ts';
import type { Fixture } from './payments.ts';
import { until } from './until.ts';

export interface PaymentServer {
  readonly url: string;
  /** Set after the payments with this origin are open. */
  fixture: Fixture | undefined;
  stop(): Promise<void>;
}

export interface TopUpAnswer {
  readonly status: number;
  readonly body: {
    readonly error?: string;
    readonly message?: string;
    readonly data?: Record<string, unknown>;
    readonly details?: { readonly reason?: string };
  };
  readonly headers: Headers;
}

export async function postTopUp(
  server: PaymentServer,
  header: string,
  name = 'PAYMENT-SIGNATURE',
): Promise<TopUpAnswer> {
  const response = await fetch(`${server.url}/api/v1/x402/top-up`, {
    method: 'POST',
    headers: { [name]: header },
  });
  const body = (await response.json()) as TopUpAnswer['body'];
  return { status: response.status, body, headers: response.headers };
}

/** Sends the same header again while the response is pending, as the response requires. */
export async function postTopUpAtLast(server: PaymentServer, header: string): Promise<TopUpAnswer> {
  let answer = await postTopUp(server, header);
  await until(async () => {
    if (answer.status !== 202 && answer.status !== 503) return true;
    answer = await postTopUp(server, header);
    return false;
  }, 'a settled payment');
  return answer;
}

const PRICE = 10_000_000n;

/** The server starts first, so that its address can be the public origin of the payments. */
export async function startPaymentServer(): Promise<PaymentServer> {
  const state: { fixture: Fixture | undefined; calls: number } = { fixture: undefined, calls: 0 };
  const server = createServer((request, response) => {
    const fixture = state.fixture;
    if (fixture === undefined) return void response.writeHead(503).end();
    state.calls += 1;
    const call = { fixture, request, response, number: state.calls };
    route(call).catch((error: unknown) => sendFault(response, error));
  });
  return {
    url: `http://127.0.0.1:${await listen(server)}`,
    get fixture() {
      return state.fixture;
    },
    set fixture(fixture) {
      state.fixture = fixture;
    },
    stop: () => endServer(server),
  };
}

interface Call {
  readonly fixture: Fixture;
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  readonly number: number;
}

async function route(call: Call): Promise<void> {
  const { request } = call;
  request.resume();
  const path = new URL(request.url ?? '/', 'http://x').pathname;
  if (path === '/api/v1/x402/top-up') return await topUp(call);
  if (path.startsWith('/api/v1/x402/balance/')) return await balance(call, path.slice(21));
  if (path === '/api/v1/chat/completions') return await chat(call);
  call.response.writeHead(404).end();
}

function headerOf(request: IncomingMessage, ...names: string[]): string | undefined {
  const found = names.map((name) => request.headers[name]).find((value) => value !== undefined);
  return typeof found === 'string' ? found : undefined;
}

const paymentHeader = (request: IncomingMessage): string | undefined =>
  headerOf(request, 'payment-signature', 'x-402-payment', 'x-payment');
const signInHeader = (request: IncomingMessage): string | undefined =>
  headerOf(request, 'sign-in-with-x', 'x-sign-in-with-x');

async function topUp({ fixture, request, response }: Call): Promise<void> {
  const header = paymentHeader(request);
  const resource = { path: '/api/v1/x402/top-up', description: 'Wallet credit' };
  if (header === undefined) {
    if (request.url?.includes('x402Version=1') === true) {
      return send(response, 402, fixture.payments.requirements.versionOne(resource, 'topUp'), {});
    }
    const answer = await fixture.payments.requirements.topUp(resource);
    return send(response, 402, answer.body, { 'PAYMENT-REQUIRED': answer.header });
  }
  const receipt = await fixture.payments.headers.topUp(header);
  send(response, 200, topUpBody(receipt), { 'PAYMENT-RESPONSE': receipt.responseHeader });
}

async function balance({ fixture, request, response }: Call, wallet: string): Promise<void> {
  const header = signInHeader(request);
  if (header === undefined) return discovery(fixture, response, `/api/v1/x402/balance/${wallet}`);
  const signed = await fixture.payments.signIn.verify(header, '');
  if (signed.wallet !== wallet.toLowerCase() && signed.wallet !== wallet) {
    throw new Fault('X402_WALLET_MISMATCH');
  }
  const credit = await fixture.balance(signed.wallet);
  send(response, 200, balanceBody(signed.wallet, credit, fixture.payments.amounts), {});
}

async function chat({ fixture, request, response, number }: Call): Promise<void> {
  const path = '/api/v1/chat/completions';
  const payment = paymentHeader(request);
  const proof = signInHeader(request);
  const headers: Record<string, string> = {};
  let wallet: string;
  if (payment !== undefined) {
    const receipt = await fixture.payments.headers.topUp(payment);
    headers['PAYMENT-RESPONSE'] = receipt.responseHeader;
    wallet = receipt.wallet;
  } else if (proof !== undefined) {
    wallet = (await fixture.payments.signIn.verify(proof, '')).wallet;
  } else return discovery(fixture, response, path);
  const credit = await fixture.balance(wallet);
  if (credit < fixture.payments.amounts.minimumBalance) {
    const needed = fixture.payments.amounts.minimumBalance;
    const answer = await fixture.payments.requirements.insufficientCredit(
      { path, description: 'Chat' },
      { balance: credit, needed },
    );
    return send(response, 402, answer.body, { 'PAYMENT-REQUIRED': answer.header });
  }
  await fixture.post(wallet, `charge-${number}`, -PRICE);
  headers['X-Balance-Remaining'] = formatUsd(credit - PRICE, 6);
  send(response, 200, { choices: [{ message: { role: 'assistant', content: 'Hi' } }] }, headers);
}

async function discovery(fixture: Fixture, response: ServerResponse, path: string): Promise<void> {
  const answer = await fixture.payments.requirements.discovery({
    path,
    description: 'A paid endpoint',
  });
  send(response, 402, answer.body, { 'PAYMENT-REQUIRED': answer.header });
}

function sendFault(response: ServerResponse, error: unknown): void {
  if (!(error instanceof Fault)) return send(response, 500, { error: String(error) }, {});
  const { body, headers, retryAfterSeconds } = error.options;
  send(response, error.status, body ?? { error: error.message, code: error.code }, {
    ...headers,
    ...(retryAfterSeconds === undefined ? {} : { 'Retry-After': String(retryAfterSeconds) }),
  });
}

function send(
  response: ServerResponse,
  status: number,
  body: unknown,
  headers: Readonly<Record<string, string>>,
): void {
  response.writeHead(status, { 'content-type': 'application/json', ...headers });
  response.end(JSON.stringify(body));
}
