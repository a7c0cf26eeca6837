/**
 * The 402 objects: discovery, top-up, insufficient credit, their `PAYMENT-REQUIRED` header, the
 * version 1 body and `/.well-known/x402.json`.
 *
 * Invariants: every URL starts with the configured public origin, never with a request header; networks
 * are CAIP-2; `accepts` is never empty; the payment headers of a response have at most `headerBytes`,
 * because proxies by default have 4 KB for all headers. The sign-in extension therefore has no JSON schema.
 */
import { type Clock, isoTime, MINUTE_MS } from '../core/clock.ts';
import type { Ids } from '../core/ids.ts';
import { type Nano, ZERO, larger, nano, toUsdNumber } from '../core/money.ts';
import { isEvm, largestOf, slugOf, unitsAbove, USDC_DECIMALS } from './networks.ts';
import {
  BAZAAR,
  BOUND_NONCE,
  HEADER_FRAME_BYTES,
  REFUNDS,
  SIGN_IN,
  type Required402,
  fittedHeader,
  signInChains,
} from './required-header.ts';
import type { Amounts } from './settings.ts';
import { DID_DOCUMENT, OFFER_RECEIPT, type Signing } from './extensions/signing.ts';

/** One payment option without its amount. */
export interface RailOffer {
  readonly network: string;
  readonly asset: string;
  readonly payTo: string;
  readonly extra: Readonly<Record<string, string>>;
  /** Minimum amount of a payment on this network, in USD, if it has one of its own. */
  readonly minimumUsd?: number;
  /** Missing if the scheme `upto` is not accepted. */
  readonly upto?: {
    readonly facilitatorAddress: string;
    /** Whether a wallet may sign its approval of Permit2 too, because the token has EIP-2612. */
    readonly takesApproval: boolean;
  };
  /** Path of the paid resource, if known. */
  readonly path?: string;
}

export interface RequirementOptions {
  readonly publicUrl: string;
  readonly basePath: string;
  readonly serviceName: string;
  readonly docsUrl: string;
  readonly keysUrl: string;
  readonly amounts: Amounts;
  readonly maxTimeoutSeconds: number;
  /** Signs offers; `undefined` if the settings disable signatures. */
  readonly signing: Signing | undefined;
  /** Networks on which unused credit can be paid back. */
  readonly refundNetworks: readonly string[];
  /** Maximum size of all payment headers of a response, with their names. */
  readonly headerBytes: number;
  readonly clock: Pick<Clock, 'nowMs'>;
  readonly ids: Pick<Ids, 'hex'>;
  /** The rails to offer now, at least one. */
  readonly offers: () => readonly RailOffer[];
}

export interface Resource {
  /** Path such as `/api/v1/chat/completions`; URLs contain at most `MAX_PATH_CHARS` of it. */
  readonly path: string;
  readonly description: string;
  readonly tags?: readonly string[];
  /** Shapes of the request and the response, for indexes. */
  readonly discovered?: Discovered | undefined;
  /** Set for another protocol than HTTP. */
  readonly protocol?: 'mcp';
}

/** Data of the bazaar extension, and the same without the response. */
export interface Discovered {
  readonly full: Json;
  readonly slim: Json;
}

export interface WalletCredit {
  readonly balance: Nano;
  /** Amount that the request needs. */
  readonly needed: Nano;
  /** Signed amount of the request's payment, if the request may spend no more. */
  readonly signed?: Nano | undefined;
}

/** An offer is for credit alone, or for a request. */
export type OfferKind = 'topUp' | 'discovery';

type Json = Readonly<Record<string, unknown>>;

export interface PaymentRequiredResponse {
  readonly body: Json;
  readonly header: string;
  /** The header for a response with other payment headers of `bytes` bytes, names included. */
  headerBeside(bytes: number): string;
  /** The amount for protocols that offer a single one. */
  readonly charge: Nano;
}

/** Service names that indexes accept. */
const SERVICE_NAME = /^[\x20-\x7e]{1,32}$/;
export const MAX_PATH_CHARS = 200;
/** Size of the balance and limit headers in a response to a known caller. */
const CALLER_HEADERS_BYTES = 250;
const CHALLENGE_MS = 5 * MINUTE_MS;
const NONCE_BYTES = 16;
const IDENTIFIER = 'payment-identifier';
/** Extension with which a wallet signs its approval of Permit2. */
export const GAS_SPONSORING = 'eip2612GasSponsoring';
const GAS_SPONSORED = { [GAS_SPONSORING]: { info: { version: '1' } } } as const;
const BOUND_NONCE_OFFER = { [BOUND_NONCE]: { info: { hash: 'keccak256' } } } as const;
export const MANIFEST_PATH = '/.well-known/x402.json';
const REFUND_TERMS = {
  unservedRequest: 'credit-at-once',
  partlyServedRequest: 'pays-what-was-delivered',
  restOfPayment: 'credit-at-once',
  creditExpires: false,
} as const;

/** An id from the client; the same id with the same payment returns the stored response. */
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

/** The URL that a 402 and a bound nonce name for a path. */
export function resourceUrl(publicUrl: string, path: string): string {
  return publicUrl + path.slice(0, MAX_PATH_CHARS);
}

export function authOptions(getKey: string, docs: string, basePath: string): Json {
  return {
    apiKey: { header: 'Authorization: Bearer YOUR_API_KEY', getKey, docs },
    x402Wallet: {
      header: 'SIGN-IN-WITH-X',
      legacyHeader: 'X-Sign-In-With-X',
      topUp: `POST ${basePath}/x402/top-up`,
      docs,
    },
  };
}

interface WantedResponse {
  readonly error: string;
  readonly amounts: readonly Nano[];
  readonly charge: Nano;
  /** Whether a ceiling of the scheme `upto` for the charge is accepted too. */
  readonly takesCeiling?: boolean;
  readonly extensions?: Json;
  /** Sign-in challenge; a new one by default. */
  readonly challenge?: ReturnType<Requirements['challenge']>;
  /** Members of the body that the header does not have. */
  readonly body?: Json;
  readonly otherBytes?: number;
}

export class Requirements {
  readonly #options: RequirementOptions;
  /** The refund terms in short, with the URL of all terms. */
  readonly #refunds: Json;
  /** Time of the start, from which the offers are the same. */
  readonly #since: string;

  constructor(options: RequirementOptions) {
    this.#options = options;
    this.#since = isoTime(options.clock.nowMs());
    const policy = this.#urlOf(MANIFEST_PATH);
    this.#refunds = { info: { unservedRequest: REFUND_TERMS.unservedRequest, policy } };
  }

  async discovery(resource: Resource): Promise<PaymentRequiredResponse> {
    const { amounts, keysUrl, docsUrl, basePath } = this.#options;
    return await this.#respond(resource, {
      error: 'Authentication or payment required',
      amounts: [amounts.suggestedTopUp, amounts.firstPayment],
      charge: amounts.firstPayment,
      takesCeiling: true,
      body: { authOptions: authOptions(keysUrl, docsUrl, basePath) },
    });
  }

  async topUp(resource: Resource): Promise<PaymentRequiredResponse> {
    const { minimumTopUp, firstPayment } = this.#options.amounts;
    return await this.#respond(resource, {
      error: 'Payment required',
      amounts: [minimumTopUp, firstPayment],
      charge: minimumTopUp,
      extensions: { [IDENTIFIER]: PAYMENT_IDENTIFIER },
    });
  }

  /**
   * The 402 for a wallet whose credit does not cover the request, or whose payment signs less than the
   * request needs. In the second case the message does not contain the credit.
   */
  async insufficientCredit(
    resource: Resource,
    credit: WalletCredit,
  ): Promise<PaymentRequiredResponse> {
    const { amounts, basePath, offers: offersNow } = this.#options;
    const { balance, needed, signed } = credit;
    const offers = offersNow();
    const base = offers.find(({ network }) => isEvm(network)) ?? offers[0];
    const minimumUsd = toUsdNumber(amounts.minimumTopUp);
    const neededUsd = toUsdNumber(needed);
    const challenge = this.#challenge(resource);
    const missing = signed === undefined ? nano(needed - balance) : needed;
    const charge = this.#firstPayment(missing);
    return await this.#respond(resource, {
      error: 'Payment required',
      amounts: [larger(amounts.suggestedTopUp, missing), charge],
      charge,
      takesCeiling: true,
      challenge,
      otherBytes: CALLER_HEADERS_BYTES,
      body: {
        code: 'PAYMENT_REQUIRED',
        reason: 'insufficient_balance',
        message:
          signed === undefined
            ? `The wallet credit of ${toUsdNumber(balance)} USD is below the ${neededUsd} USD that this request needs`
            : `The payment of ${toUsdNumber(signed)} USD is below the ${neededUsd} USD that this request needs: sign that amount, or send SIGN-IN-WITH-X or an API key of the wallet with the request to spend the credit of the wallet as well`,
        currentBalanceUsd: toUsdNumber(balance),
        minimumBalanceUsd: neededUsd,
        description: resource.description,
        suggestedTopUpUsd: toUsdNumber(amounts.suggestedTopUp),
        minimumTopUpUsd: minimumUsd,
        supportedTokens: ['USDC'],
        supportedChains: offers.map(({ network }) => slugOf(network)),
        topUpInstructions: {
          step1: `POST ${this.#urlOf(`${basePath}/x402/top-up`)} without a payment header`,
          step2: 'Choose one entry of accepts and sign exactly it with an x402 client',
          step3: 'POST again with the PAYMENT-SIGNATURE header',
          receiverWallet: base?.payTo ?? '',
          tokenAddress: base?.asset ?? '',
          tokenDecimals: USDC_DECIMALS,
          network: base?.network ?? '',
          minimumAmountUsd: minimumUsd,
        },
        siwxChallenge: challenge,
      },
    });
  }

  /**
   * The version 1 body, with the field and network names of v1. The first entry of each network is the
   * price of the request if it is known, and at least the first payment.
   */
  versionOne(resource: Resource, kind: OfferKind, price: Nano = ZERO): Json {
    const { minimumTopUp, firstPaymentVersionOne } = this.#options.amounts;
    const least = larger(price, firstPaymentVersionOne);
    // Stock clients take the first entry of their network, and reject it if it is too expensive.
    const offered = kind === 'topUp' ? [minimumTopUp] : [least, larger(minimumTopUp, least)];
    const { url, description, mimeType } = this.#described(resource);
    return {
      x402Version: 1,
      error: 'Payment required',
      accepts: this.#accepts(offered).map((option) => ({
        scheme: option.scheme,
        network: slugOf(option.network),
        maxAmountRequired: option.amount,
        resource: url,
        description,
        mimeType,
        payTo: option.payTo,
        maxTimeoutSeconds: option.maxTimeoutSeconds,
        asset: option.asset,
        extra: option.extra,
      })),
    };
  }

  manifest(resources: readonly Resource[]): Json {
    const { publicUrl, basePath, serviceName, amounts, signing } = this.#options;
    return {
      x402Version: 2,
      service: serviceName,
      origin: new URL(publicUrl).origin,
      topUp: this.#urlOf(`${basePath}/x402/top-up`),
      balance: this.#urlOf(`${basePath}/x402/balance/{walletAddress}`),
      minimumTopUpUsd: toUsdNumber(amounts.minimumTopUp),
      maximumTopUpUsd: toUsdNumber(amounts.maximumTopUp),
      firstPaymentUsd: toUsdNumber(amounts.firstPayment),
      accepts: this.#accepts([amounts.minimumTopUp, amounts.firstPayment], amounts.firstPayment),
      refundPolicy: this.#refundPolicy(),
      extensions: [
        SIGN_IN,
        IDENTIFIER,
        REFUNDS,
        ...(this.#takesBase() ? [BOUND_NONCE] : []),
        ...(this.#takesApproval() ? [GAS_SPONSORING] : []),
        ...(signing === undefined ? [] : [OFFER_RECEIPT]),
      ],
      resources: resources.map((resource) => {
        const { url, description, mimeType } = this.#described(resource);
        return { url, description, mimeType };
      }),
    };
  }

  discoverable(resources: readonly Resource[]) {
    const { suggestedTopUp, firstPayment } = this.#options.amounts;
    const accepts = this.#accepts([suggestedTopUp, firstPayment], firstPayment);
    return resources.map((resource) => {
      const { url, ...described } = this.#described(resource);
      return {
        resource: url,
        type: resource.protocol ?? 'http',
        x402Version: 2,
        accepts,
        lastUpdated: this.#since,
        ...described,
        extensions: resource.discovered === undefined ? {} : { [BAZAAR]: resource.discovered.full },
      };
    });
  }

  /** The smallest multiple of the first payment that covers the amount, if that is below a top-up. */
  #firstPayment(short: Nano): Nano {
    const { firstPayment, minimumTopUp } = this.#options.amounts;
    if (short >= minimumTopUp) return short;
    const times = short <= 0n ? 1n : (short + firstPayment - 1n) / firstPayment;
    return nano(times * firstPayment);
  }

  #refundPolicy(): Json {
    const { basePath, docsUrl, signing, refundNetworks } = this.#options;
    return {
      ...REFUND_TERMS,
      creditToWallet: refundNetworks.length === 0 ? 'none' : 'on-request',
      creditToWalletNetworks: refundNetworks,
      ...(signing === undefined
        ? {}
        : {
            receipt: this.#urlOf(`${basePath}/usage/{requestId}/signed`),
            keys: this.#urlOf(DID_DOCUMENT),
          }),
      docs: docsUrl,
    };
  }

  async #respond(resource: Resource, wanted: WantedResponse): Promise<PaymentRequiredResponse> {
    const { signing, headerBytes } = this.#options;
    const { error, amounts, charge, takesCeiling = false, body, otherBytes = 0 } = wanted;
    const { challenge = this.#challenge(resource) } = wanted;
    const described = this.#described(resource);
    const accepts = this.#accepts(amounts, takesCeiling ? charge : undefined);
    const { discovered } = resource;
    const required: Required402 = {
      x402Version: 2,
      error,
      resource: described,
      accepts,
      extensions: {
        [SIGN_IN]: challenge,
        ...wanted.extensions,
        ...(takesCeiling && this.#takesApproval() ? GAS_SPONSORED : {}),
        ...(this.#takesBase() ? BOUND_NONCE_OFFER : {}),
        [REFUNDS]: this.#refunds,
        ...(discovered === undefined ? {} : { [BAZAAR]: discovered.full }),
        ...(signing === undefined
          ? {}
          : {
              [OFFER_RECEIPT]: { info: { offers: await signing.offers(described.url, accepts) } },
            }),
      },
    };
    const mostBytes = headerBytes - otherBytes - HEADER_FRAME_BYTES;
    const headerBeside = (bytes: number): string =>
      fittedHeader(required, discovered?.slim, mostBytes - bytes);
    return {
      body: { ...required, ...body },
      charge,
      headerBeside,
      get header() {
        return headerBeside(0);
      },
    };
  }

  #described({ path, description, tags }: Resource) {
    const url = this.#urlOf(path);
    const { serviceName } = this.#options;
    return {
      url,
      description,
      mimeType: 'application/json',
      ...(SERVICE_NAME.test(serviceName) ? { serviceName } : {}),
      ...(tags === undefined ? {} : { tags }),
    };
  }

  /**
   * Every rail for each amount, in the order of the amounts, because stock clients take the first option
   * that they may pay; then the options of the scheme `upto`.
   */
  #accepts(exactAmounts: readonly Nano[], ceiling?: Nano) {
    const { maxTimeoutSeconds, amounts } = this.#options;
    const offers = this.#options.offers();
    const hints = ({ minimumUsd = 0 }: RailOffer) => ({
      minimumTopUpUsd: Math.max(toUsdNumber(amounts.minimumTopUp), minimumUsd),
      suggestedTopUpUsd: Math.max(toUsdNumber(amounts.suggestedTopUp), minimumUsd),
    });
    const entry = (
      scheme: 'exact' | 'upto',
      { network, asset, payTo }: RailOffer,
      units: bigint,
      extra: Json,
    ) => {
      return { scheme, network, asset, amount: units.toString(), payTo, maxTimeoutSeconds, extra };
    };
    const seen = new Set<string>();
    const exact = exactAmounts.flatMap((amount) =>
      offers.flatMap((offer) => {
        const units = unitsAbove(largestOf(amount, offer));
        const name = `${offer.network} ${units}`;
        if (seen.has(name)) return [];
        seen.add(name);
        return [entry('exact', offer, units, { ...offer.extra, ...hints(offer) })];
      }),
    );
    if (ceiling === undefined) return exact;
    const ceilings = offers.flatMap((offer) => {
      const { extra, upto } = offer;
      if (upto === undefined) return [];
      const { facilitatorAddress } = upto;
      const all = { ...extra, assetTransferMethod: 'permit2', facilitatorAddress };
      return [entry('upto', offer, unitsAbove(largestOf(ceiling, offer)), all)];
    });
    return [...exact, ...ceilings];
  }

  #takesBase(): boolean {
    return this.#options.offers().some(({ network }) => isEvm(network));
  }

  #takesApproval(): boolean {
    return this.#options.offers().some(({ upto }) => upto?.takesApproval === true);
  }

  challenge() {
    return this.#challenge({ path: '/console', description: '' });
  }

  #challenge(resource: Resource) {
    const { publicUrl, serviceName, clock, ids } = this.#options;
    const nowMs = clock.nowMs();
    return {
      info: {
        domain: new URL(publicUrl).host,
        uri: this.#urlOf(resource.path),
        version: '1',
        nonce: ids.hex(NONCE_BYTES),
        issuedAt: isoTime(nowMs),
        expirationTime: isoTime(nowMs + CHALLENGE_MS),
        statement: `Sign in to ${serviceName}`,
      },
      supportedChains: signInChains(this.#options.offers()),
    };
  }

  #urlOf(path: string): string {
    return resourceUrl(this.#options.publicUrl, path);
  }
}
