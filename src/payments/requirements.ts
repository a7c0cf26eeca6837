/**
 * The 402 objects: discovery, top-up, insufficient credit, their `PAYMENT-REQUIRED` header, the
 * version 1 body and `/.well-known/x402.json`.
 *
 * Invariants: every URL comes from the configured public origin, never from a request header;
 * networks are CAIP-2; `accepts` is never empty; the payment headers of a response together stay within
 * `headerBytes`, since proxies by default have 4 KB for all headers. The sign-in extension therefore
 * carries no JSON schema, and what does not fit stands in the body alone.
 */
import { type Clock, isoTime, MINUTE_MS } from '../core/clock.ts';
import type { Ids } from '../core/ids.ts';
import { type Nano, ZERO, larger, nano, toUsdNumber } from '../core/money.ts';
import { slugOf, unitsAbove, USDC_DECIMALS } from './networks.ts';
import {
  BAZAAR,
  BOUND_NONCE,
  HEADER_FRAME_BYTES,
  REFUNDS,
  type Required402,
  fittedHeader,
} from './required-header.ts';
import type { Amounts } from './settings.ts';
import { DID_DOCUMENT, OFFER_RECEIPT, type Signing } from './extensions/signing.ts';

/** One payment option without its amount. */
export interface RailOffer {
  readonly network: string;
  readonly asset: string;
  readonly payTo: string;
  readonly extra: Readonly<Record<string, string>>;
  /** Missing where the scheme `upto` is not taken. */
  readonly upto?: {
    readonly facilitatorAddress: string;
    /** Whether a wallet may sign its approval of Permit2 too: the token is known to have EIP-2612. */
    readonly takesApproval: boolean;
  };
  /** Path of what it was offered for; missing where that is not known. */
  readonly path?: string;
}

export interface RequirementOptions {
  /** The configured public origin, without a trailing slash. */
  readonly publicUrl: string;
  readonly basePath: string;
  readonly serviceName: string;
  readonly docsUrl: string;
  readonly keysUrl: string;
  readonly amounts: Amounts;
  readonly maxTimeoutSeconds: number;
  /** Signs what is offered; `undefined` where nothing is signed. */
  readonly signing: Signing | undefined;
  /** Networks on which unused credit can be paid back. */
  readonly refundNetworks: readonly string[];
  /** Most bytes of the payment headers of a response together, with their names. */
  readonly headerBytes: number;
  readonly clock: Pick<Clock, 'nowMs'>;
  readonly ids: Pick<Ids, 'hex'>;
  /** The rails to offer now, at least one. */
  readonly offers: () => readonly RailOffer[];
}

export interface Resource {
  /** Path from the origin on, for example `/api/v1/chat/completions`; cut where it is long. */
  readonly path: string;
  readonly description: string;
  readonly tags?: readonly string[];
  /** How it is asked and what it answers, for indexes. */
  readonly discovered?: Discovered | undefined;
  /** Set where it is asked by another protocol than HTTP. */
  readonly protocol?: 'mcp';
}

/** Data of the bazaar extension, and the same without the answer. */
export interface Discovered {
  readonly full: Json;
  readonly slim: Json;
}

/** What a wallet has for a request, and what the request needs. */
export interface WalletCredit {
  readonly balance: Nano;
  readonly needed: Nano;
  /** What the payment of the request signs, where that is the most that it may spend. */
  readonly signed?: Nano | undefined;
}

/** What an offer is for: credit by itself, or a request that is sold. */
export type OfferKind = 'topUp' | 'discovery';

type Json = Readonly<Record<string, unknown>>;

export interface PaymentRequiredResponse {
  readonly body: Json;
  readonly header: string;
  /** The header beside other payment headers of so many bytes, names included. */
  headerBeside(bytes: number): string;
  /** What a single charge should be, for protocols that offer one amount. */
  readonly charge: Nano;
}

/** What indexes take as the name of a service. */
const SERVICE_NAME = /^[\x20-\x7e]{1,32}$/;
/** Paths go into a header whose size is bounded. */
export const MAX_PATH_CHARS = 200;
/** Headers of the balance and of limits, which only the response to a known caller has. */
const CALLER_HEADERS_BYTES = 250;
const CHALLENGE_MS = 5 * MINUTE_MS;
const NONCE_BYTES = 16;
const SIGN_IN = 'sign-in-with-x';
const IDENTIFIER = 'payment-identifier';
/** Name of the extension by which a wallet signs its approval of Permit2, which costs our gas alone. */
export const GAS_SPONSORING = 'eip2612GasSponsoring';
const GAS_SPONSORED = { [GAS_SPONSORING]: { info: { version: '1' } } } as const;
/** A client may bind its nonce to this server: `bound-nonce.ts`. */
const BOUND_NONCE_OFFER = { [BOUND_NONCE]: { info: { hash: 'keccak256' } } } as const;
export const MANIFEST_PATH = '/.well-known/x402.json';
/** The same for every operator: how the ledger works. */
const REFUND_TERMS = {
  unservedRequest: 'credit-at-once',
  partlyServedRequest: 'pays-what-was-delivered',
  restOfPayment: 'credit-at-once',
  creditExpires: false,
} as const;

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
  readonly asked: readonly Nano[];
  readonly charge: Nano;
  /** Whether a ceiling of the scheme `upto` for the charge is accepted too. */
  readonly takesCeiling?: boolean;
  readonly extensions?: Json;
  /** Sign-in challenge; a new one by default. */
  readonly challenge?: Json;
  /** Members of the body that the header does not have. */
  readonly body?: Json;
  /** Bytes of other headers of the response. */
  readonly otherBytes?: number;
}

export class Requirements {
  readonly #options: RequirementOptions;

  /** The terms in short, and where all of them are. */
  readonly #refunds: Json;
  /** When what is offered was last read: the start. */
  readonly #since: string;

  constructor(options: RequirementOptions) {
    this.#options = options;
    this.#since = isoTime(options.clock.nowMs());
    const policy = this.#urlOf(MANIFEST_PATH);
    this.#refunds = { info: { unservedRequest: REFUND_TERMS.unservedRequest, policy } };
  }

  /** The 402 for a caller without credentials. */
  async discovery(resource: Resource): Promise<PaymentRequiredResponse> {
    const { amounts, keysUrl, docsUrl, basePath } = this.#options;
    return await this.#respond(resource, {
      error: 'Authentication or payment required',
      asked: [amounts.suggestedTopUp, amounts.firstPayment],
      charge: amounts.firstPayment,
      takesCeiling: true,
      body: { authOptions: authOptions(keysUrl, docsUrl, basePath) },
    });
  }

  /** The 402 of `POST /x402/top-up` without a payment header. */
  async topUp(resource: Resource): Promise<PaymentRequiredResponse> {
    const { minimumTopUp, firstPayment } = this.#options.amounts;
    return await this.#respond(resource, {
      error: 'Payment required',
      asked: [minimumTopUp, firstPayment],
      charge: minimumTopUp,
      extensions: { [IDENTIFIER]: PAYMENT_IDENTIFIER },
    });
  }

  /**
   * The 402 for a wallet whose credit does not cover the request, or whose payment signs less than the
   * request needs; in the second case it does not report the credit.
   */
  async insufficientCredit(
    resource: Resource,
    credit: WalletCredit,
  ): Promise<PaymentRequiredResponse> {
    const { amounts, basePath, offers: offersNow } = this.#options;
    const { balance, needed, signed } = credit;
    const offers = offersNow();
    const base = offers.find((offer) => offer.network.startsWith('eip155:')) ?? offers[0];
    const minimumUsd = toUsdNumber(amounts.minimumTopUp);
    const neededUsd = toUsdNumber(needed);
    const challenge = this.#challenge(resource);
    // A payment now has to be enough for this request.
    const missing = signed === undefined ? nano(needed - balance) : needed;
    const charge = this.#firstPayment(missing);
    return await this.#respond(resource, {
      error: 'Payment required',
      asked: [larger(amounts.suggestedTopUp, missing), charge],
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
            : `The payment of ${toUsdNumber(signed)} USD is below the ${neededUsd} USD that this request needs: sign that much, or send SIGN-IN-WITH-X or an API key of the wallet with the request, which spends the credit of the wallet as well`,
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
   * The version 1 body, for clients that read nothing else; amounts and networks as v1 names them. The
   * first entry of each network is the price of the request where it is known, and never less than the
   * first payment.
   */
  versionOne(resource: Resource, kind: OfferKind, price: Nano = ZERO): Json {
    const { minimumTopUp, firstPaymentVersionOne } = this.#options.amounts;
    const least = larger(price, firstPaymentVersionOne);
    // Its stock clients take the first entry of their network, and refuse it when it is too much.
    const asked = kind === 'topUp' ? [minimumTopUp] : [least, larger(minimumTopUp, least)];
    const { url, description, mimeType } = this.#described(resource);
    return {
      x402Version: 1,
      error: 'Payment required',
      accepts: this.#accepts(asked).map((option) => ({
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

  /** `/.well-known/x402.json`: what can be paid for here, and how. */
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

  /** What can be paid for here, as indexes list it. */
  discoverable(resources: readonly Resource[]) {
    const { amounts } = this.#options;
    const asked = [amounts.suggestedTopUp, amounts.firstPayment];
    const accepts = this.#accepts(asked, amounts.firstPayment);
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

  /** As many first payments as cover the amount, while that is less than a top-up. */
  #firstPayment(short: Nano): Nano {
    const { firstPayment, minimumTopUp } = this.#options.amounts;
    if (short >= minimumTopUp) return short;
    const times = short <= 0n ? 1n : (short + firstPayment - 1n) / firstPayment;
    return nano(times * firstPayment);
  }

  /** What becomes of money that buys nothing, for programs. */
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
    const { error, asked, charge, takesCeiling = false, body, otherBytes = 0 } = wanted;
    const { challenge = this.#challenge(resource) } = wanted;
    const described = this.#described(resource);
    const accepts = this.#accepts(asked, takesCeiling ? charge : undefined);
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
      fittedHeader(required, discovered, mostBytes - bytes);
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
   * Every rail for each of the amounts, in their order: stock clients take the first that they may pay.
   * Then those that take a ceiling.
   */
  #accepts(asked: readonly Nano[], ceiling?: Nano) {
    const { maxTimeoutSeconds, amounts } = this.#options;
    const offers = this.#options.offers();
    const topUps = {
      minimumTopUpUsd: toUsdNumber(amounts.minimumTopUp),
      suggestedTopUpUsd: toUsdNumber(amounts.suggestedTopUp),
    };
    const entry = (
      scheme: 'exact' | 'upto',
      { network, asset, payTo }: RailOffer,
      units: bigint,
      extra: Json,
    ) => {
      return { scheme, network, asset, amount: units.toString(), payTo, maxTimeoutSeconds, extra };
    };
    const exact = [...new Set(asked.map(unitsAbove))].flatMap((units) =>
      offers.map((offer) => entry('exact', offer, units, { ...offer.extra, ...topUps })),
    );
    if (ceiling === undefined) return exact;
    const ceilings = offers.flatMap((offer) => {
      const { extra, upto } = offer;
      if (upto === undefined) return [];
      const { facilitatorAddress } = upto;
      const all = { ...extra, assetTransferMethod: 'permit2', facilitatorAddress };
      return [entry('upto', offer, unitsAbove(ceiling), all)];
    });
    return [...exact, ...ceilings];
  }

  #takesBase(): boolean {
    return this.#options.offers().some(({ network }) => network.startsWith('eip155:'));
  }

  #takesApproval(): boolean {
    return this.#options.offers().some(({ upto }) => upto?.takesApproval === true);
  }

  /** What a wallet signs to sign in to the console. */
  challenge() {
    return this.#challenge({ path: '/console', description: '' });
  }

  /** A sign-in challenge of five minutes. `eip191` stands first: clients take the first match. */
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
      supportedChains: this.#options.offers().flatMap(({ network: chainId }) => {
        const types = chainId.startsWith('solana:') ? ['ed25519'] : ['eip191', 'eip1271'];
        return types.map((type) => ({ chainId, type }));
      }),
    };
  }

  #urlOf(path: string): string {
    return resourceUrl(this.#options.publicUrl, path);
  }
}
