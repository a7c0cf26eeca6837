/**
 * What makes a well-formed proof acceptable, apart from its signature: the address, the chain, the
 * domain and the times. The order below is the order in which faults win when several apply.
 */
import { MINUTE_MS, SECOND_MS } from '../../core/clock.ts';
import { walletIdentity, walletKind } from '../../core/addresses.ts';
import { type Proof, chainOfMessage, refuseSignIn } from './proof.ts';

/** A sign-in is fresh for five minutes after `issuedAt`. */
const MAX_AGE_MS = 5 * MINUTE_MS;
/** Clocks of callers may be 30 s ahead, and `timestamp` 30 s off. */
const CLOCK_SKEW_MS = 30 * SECOND_MS;
/** EIP-4361 asks for at least 8 characters; the bound keeps the nonce table small. */
const NONCE = /^[A-Za-z0-9._~-]{8,128}$/;

export interface RuleOptions {
  /** Host and port of the configured public origin. */
  readonly domain: string;
  /** CAIP-2 chains on which sign-in is allowed. */
  readonly chains: ReadonlySet<string>;
  readonly nowMs: number;
}

/** Checks every rule and gives the identity of the wallet. Throws a Fault. */
export function checkRules(proof: Proof, options: RuleOptions): string {
  const wallet = checkWallet(proof);
  checkChain(proof, options.chains);
  if (proof.message.version !== '1') {
    throw refuseSignIn('INVALID_MESSAGE', 'The version of the sign-in message must be 1');
  }
  if (!NONCE.test(proof.message.nonce)) {
    throw refuseSignIn('INVALID_MESSAGE', 'The nonce must have 8 to 128 letters or digits');
  }
  if (proof.message.domain !== options.domain) {
    throw refuseSignIn('DOMAIN_MISMATCH', `The sign-in must be for the domain ${options.domain}`);
  }
  checkTimes(proof, options.nowMs);
  return wallet;
}

function checkWallet(proof: Proof): string {
  const kind = walletKind(proof.address);
  const messageKind = walletKind(proof.message.address);
  if (kind === undefined || messageKind === undefined || messageKind !== proof.message.family) {
    throw refuseSignIn('INVALID_WALLET');
  }
  const wallet = walletIdentity(proof.address);
  if (wallet !== walletIdentity(proof.message.address)) throw refuseSignIn('ADDRESS_MISMATCH');
  return wallet;
}

function checkChain(proof: Proof, chains: ReadonlySet<string>): void {
  const own = chainOfMessage(proof.message);
  if (proof.message.family === 'evm' && !/^[1-9]\d{0,15}$/.test(proof.message.chainReference)) {
    throw refuseSignIn('INVALID_CHAIN_ID');
  }
  if (proof.chain !== own) throw refuseSignIn('CHAIN_MISMATCH');
  if (!chains.has(own)) {
    throw refuseSignIn('UNSUPPORTED_CHAIN', `Sign in on one of ${[...chains].join(', ')}`);
  }
}

function checkTimes(proof: Proof, nowMs: number): void {
  const { message, timestampMs } = proof;
  const issuedMs = readTime(message.issuedAt);
  if (timestampMs !== undefined && Math.abs(timestampMs - issuedMs) > CLOCK_SKEW_MS) {
    throw refuseSignIn('TIMESTAMP_MISMATCH');
  }
  if (issuedMs > nowMs + CLOCK_SKEW_MS) throw refuseSignIn('FUTURE_TIMESTAMP');
  if (nowMs - issuedMs > MAX_AGE_MS) throw refuseSignIn('EXPIRED');
  const expiresMs =
    message.expirationTime === undefined ? Infinity : readTime(message.expirationTime);
  if (expiresMs <= nowMs) throw refuseSignIn('EXPIRED');
  if (message.notBefore !== undefined && readTime(message.notBefore) > nowMs) {
    throw refuseSignIn('NOT_BEFORE');
  }
}

/** ISO 8601 with a date and a time, as EIP-4361 asks; `Date.parse` alone would take "5". */
const ISO_TIME = /^\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d{1,9})?([Zz]|[+-]\d{2}:\d{2})$/;

function readTime(text: string): number {
  const ms = ISO_TIME.test(text) ? Date.parse(text) : Number.NaN;
  if (Number.isNaN(ms)) {
    throw refuseSignIn('INVALID_MESSAGE', 'The times of the sign-in must be ISO 8601');
  }
  return ms;
}

/** Until when a nonce must be remembered: after that its proof is too old anyway. */
export function nonceExpiryMs(proof: Proof): number {
  return Date.parse(proof.message.issuedAt) + MAX_AGE_MS + CLOCK_SKEW_MS;
}
