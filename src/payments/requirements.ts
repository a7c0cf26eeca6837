/**
 * The 402 objects: discovery, top-up, insufficient credit, their `PAYMENT-REQUIRED` header, the
 * version 1 body and `/.well-known/x402.json`. Pure functions of their options.
 *
 * Invariants: every URL comes from the configured public origin, never from a request header;
 * networks are CAIP-2; `accepts` is never empty; all x402 headers of an answer stay under 4 KB
 * (a proxy's default buffer), so the sign-in extension carries no JSON schema.
 */
import { isoTime, MINUTE_MS } from '../core/clock.ts';
import { toUsdNumber } from '../core/money.ts';
import type { Nano } from '../core/money.ts';
import { encodeHeader } from './header-codec.ts';
import { nanoToUnits, networkFacts, USDC_DECIMALS } from './networks.ts';
import type { Amounts } from './settings.ts';

/** One payment option without its amount. */
export interface RailOffer {
  readonly network: string;
  readonly asset: string;
  readonly payTo: string;
  readonly extra: Readonly<Record<string, string>>;
}

export interface RequirementOptions {
  /** The configured public origin, without a trailing slash. */
  readonly publicUrl: string;
  /** Version path of the service, for example `/api/v1`. */
  readonly basePath: string;
  /** The operator's name of the service. */
  readonly serviceName: string;
  readonly docsUrl: string;
  readonly keysUrl: string;
  readonly amounts: Amounts;
  readonly maxTimeoutSeconds: number;
}

export interface Resource {
  /** Path from the origin on, for example `/api/v1/chat/completions`. */
  readonly path: string;
  readonly description: string;
  readonly mimeType?: string;
}

interface PaymentOption {
  readonly scheme: 'exact';
  readonly network: string;
  readonly asset: string;
  readonly amount: string;
  readonly payTo: string;
  readonly maxTimeoutSeconds: number;
  readonly extra: Readonly<Record<string, string>>;
}

export interface SignInChallenge {
  readonly info: {
    readonly domain: string;
    readonly uri: string;
    readonly version: '1';
    readonly nonce: string;
    readonly issuedAt: string;
    readonly expirationTime: string;
    readonly statement: string;
  };
  readonly supportedChains: readonly { readonly chainId: string; readonly type: string }[];
}

/** A 402 answer: its body and the value of its `PAYMENT-REQUIRED` header. */
export interface PaymentRequiredAnswer {
  readonly body: Readonly<Record<string, unknown>>;
  readonly header: string;
}

const CHALLENGE_MS = 5 * MINUTE_MS;

function paymentOptions(
  options: RequirementOptions,
  offers: readonly RailOffer[],
  amount: Nano,
): readonly PaymentOption[] {
  return offers.map((offer) => ({
    scheme: 'exact',
    network: offer.network,
    asset: offer.asset,
    amount: nanoToUnits(amount).toString(),
    payTo: offer.payTo,
    maxTimeoutSeconds: options.maxTimeoutSeconds,
    extra: offer.extra,
  }));
}

/** A sign-in challenge of five minutes. `eip191` stands first: clients take the first match. */
export function signInChallenge(
  options: RequirementOptions,
  offers: readonly RailOffer[],
  resource: Resource,
  moment: { readonly nowMs: number; readonly nonce: string },
): SignInChallenge {
  return {
    info: {
      domain: new URL(options.publicUrl).host,
      uri: urlOf(options, resource.path),
      version: '1',
      nonce: moment.nonce,
      issuedAt: isoTime(moment.nowMs),
      expirationTime: isoTime(moment.nowMs + CHALLENGE_MS),
      statement: `Sign in to ${options.serviceName}`,
    },
    supportedChains: offers.flatMap(({ network }) =>
      network.startsWith('solana:')
        ? [{ chainId: network, type: 'ed25519' }]
        : [
            { chainId: network, type: 'eip191' },
            { chainId: network, type: 'eip1271' },
          ],
    ),
  };
}

function paymentRequired(
  options: RequirementOptions,
  resource: Resource,
  error: string,
  accepts: readonly PaymentOption[],
  extensions: Readonly<Record<string, unknown>>,
): Readonly<Record<string, unknown>> {
  return {
    x402Version: 2,
    error,
    resource: {
      url: urlOf(options, resource.path),
      description: resource.description,
      mimeType: resource.mimeType ?? 'application/json',
    },
    accepts,
    extensions,
  };
}

/** For a caller without credentials. */
export function discoveryAnswer(
  options: RequirementOptions,
  offers: readonly RailOffer[],
  resource: Resource,
  challenge: SignInChallenge,
): PaymentRequiredAnswer {
  const required = paymentRequired(
    options,
    resource,
    'Authentication or payment required',
    paymentOptions(options, offers, options.amounts.suggestedTopUp),
    { 'sign-in-with-x': challenge },
  );
  return {
    body: { ...required, authOptions: authOptions(options) },
    header: encodeHeader(required),
  };
}

/** For `POST /x402/top-up` without a payment header. */
export function topUpAnswer(
  options: RequirementOptions,
  offers: readonly RailOffer[],
  resource: Resource,
  challenge: SignInChallenge,
): PaymentRequiredAnswer {
  const required = paymentRequired(
    options,
    resource,
    'Payment required',
    paymentOptions(options, offers, options.amounts.minimumTopUp),
    { 'sign-in-with-x': challenge, 'payment-identifier': PAYMENT_IDENTIFIER },
  );
  return { body: required, header: encodeHeader(required) };
}

/** What clients may add: the same id with the same payment gives the stored answer. */
const PAYMENT_IDENTIFIER = {
  info: { required: false },
  schema: {
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    type: 'object',
    properties: {
      required: { type: 'boolean' },
      id: { type: 'string', minLength: 16, maxLength: 128, pattern: '^[a-zA-Z0-9_-]+$' },
    },
    required: ['required'],
  },
} as const;

/** The version 1 body, for clients that read nothing else; amounts and networks as v1 names them. */
export function versionOneBody(
  options: RequirementOptions,
  offers: readonly RailOffer[],
  resource: Resource,
  amount: Nano,
): Readonly<Record<string, unknown>> {
  return {
    x402Version: 1,
    error: 'Payment required',
    accepts: paymentOptions(options, offers, amount).map((option) => ({
      scheme: option.scheme,
      network: networkFacts(option.network)?.slug ?? option.network,
      maxAmountRequired: option.amount,
      resource: urlOf(options, resource.path),
      description: resource.description,
      mimeType: resource.mimeType ?? 'application/json',
      payTo: option.payTo,
      maxTimeoutSeconds: option.maxTimeoutSeconds,
      asset: option.asset,
      extra: option.extra,
    })),
  };
}

/** For a signed-in wallet whose credit does not cover the request. */
export function insufficientAnswer(
  options: RequirementOptions,
  offers: readonly RailOffer[],
  resource: Resource,
  challenge: SignInChallenge,
  credit: { readonly balance: Nano; readonly needed: Nano },
): PaymentRequiredAnswer {
  const { amounts } = options;
  const base = offers.find((offer) => offer.network.startsWith('eip155:')) ?? offers[0];
  const minimumUsd = toUsdNumber(amounts.minimumTopUp);
  const required = paymentRequired(
    options,
    resource,
    'Payment required',
    paymentOptions(options, offers, amounts.suggestedTopUp),
    { 'sign-in-with-x': challenge },
  );
  const body = {
    error: 'Payment required',
    code: 'PAYMENT_REQUIRED',
    reason: 'insufficient_balance',
    message: `The wallet credit of ${toUsdNumber(credit.balance)} USD is below the ${toUsdNumber(credit.needed)} USD that this request needs`,
    currentBalanceUsd: toUsdNumber(credit.balance),
    minimumBalanceUsd: toUsdNumber(credit.needed),
    description: resource.description,
    suggestedTopUpUsd: toUsdNumber(amounts.suggestedTopUp),
    minimumTopUpUsd: minimumUsd,
    supportedTokens: ['USDC'],
    supportedChains: offers.map((offer) => displayName(offer.network)),
    topUpInstructions: {
      step1: `POST ${urlOf(options, `${options.basePath}/x402/top-up`)} without a payment header`,
      step2: 'Choose one entry of accepts and sign exactly it with an x402 client',
      step3: 'POST again with the PAYMENT-SIGNATURE header',
      receiverWallet: base?.payTo ?? '',
      tokenAddress: base?.asset ?? '',
      tokenDecimals: USDC_DECIMALS,
      network: base?.network ?? '',
      minimumAmountUsd: minimumUsd,
    },
    siwxChallenge: challenge,
  };
  return { body, header: encodeHeader(required) };
}

function urlOf(options: RequirementOptions, path: string): string {
  return `${options.publicUrl}${path}`;
}

function displayName(network: string): string {
  return networkFacts(network)?.slug ?? network;
}

function authOptions(options: RequirementOptions): Readonly<Record<string, unknown>> {
  return {
    apiKey: {
      header: 'Authorization: Bearer YOUR_API_KEY',
      getKey: options.keysUrl,
      docs: options.docsUrl,
    },
    x402Wallet: {
      header: 'SIGN-IN-WITH-X',
      legacyHeader: 'X-Sign-In-With-X',
      topUp: `POST ${options.basePath}/x402/top-up`,
      docs: options.docsUrl,
    },
  };
}

/** `/.well-known/x402.json`: what can be paid for here, and how. */
export function wellKnownManifest(
  options: RequirementOptions,
  offers: readonly RailOffer[],
  resources: readonly Resource[],
): Readonly<Record<string, unknown>> {
  return {
    x402Version: 2,
    service: options.serviceName,
    origin: new URL(options.publicUrl).origin,
    topUp: urlOf(options, `${options.basePath}/x402/top-up`),
    balance: urlOf(options, `${options.basePath}/x402/balance/{walletAddress}`),
    minimumTopUpUsd: toUsdNumber(options.amounts.minimumTopUp),
    maximumTopUpUsd: toUsdNumber(options.amounts.maximumTopUp),
    accepts: paymentOptions(options, offers, options.amounts.minimumTopUp),
    extensions: ['sign-in-with-x', 'payment-identifier', 'offer-receipt'],
    resources: resources.map((resource) => ({
      url: urlOf(options, resource.path),
      description: resource.description,
      mimeType: resource.mimeType ?? 'application/json',
    })),
  };
}
