/**
 * The value of `PAYMENT-REQUIRED`: as much of a 402 as fits into the size limit of the payment headers.
 * The body of the response contains all of it.
 */
import { encodeHeader } from './header-codec.ts';
import { isEvm } from './networks.ts';
import { OFFER_RECEIPT, type OfferedOption, type SignedOffer } from './extensions/signing.ts';

type Json = Readonly<Record<string, unknown>>;

export const SIGN_IN = 'sign-in-with-x';
export const REFUNDS = 'refund-policy';
export const BAZAAR = 'bazaar';
export const BOUND_NONCE = 'bound-nonce';
/** Bytes of a header line without its value. */
export const HEADER_FRAME_BYTES = 'PAYMENT-REQUIRED: \r\n'.length;

interface PaymentOption extends OfferedOption {
  readonly extra: Json;
}

export interface Required402 extends Json {
  readonly resource: Json & { readonly url: string };
  readonly accepts: readonly PaymentOption[];
  readonly extensions: Json & {
    readonly [SIGN_IN]?: Json & {
      readonly supportedChains: readonly { readonly chainId: string }[];
    };
    readonly [OFFER_RECEIPT]?: { readonly info: { readonly offers: readonly SignedOffer[] } };
  };
}

/** Encodes the most complete form with at most `mostBytes`; `slim` is the shorter data for indexes. */
export function fittedHeader(
  required: Required402,
  slim: Json | undefined,
  mostBytes: number,
): string {
  let header = '';
  for (const form of headerForms(required, slim)) {
    header = encodeHeader(form);
    if (header.length <= mostBytes) break;
  }
  return header;
}

/**
 * Shorter and shorter forms of a 402. They drop signed offers first, then the data for indexes, then terms
 * and hints, then the larger amounts, and last networks, from the end of the list: with the shortest form a
 * client can still pay and sign in.
 */
function* headerForms(required: Required402, slim: Json | undefined): Generator<Json> {
  const { [OFFER_RECEIPT]: offered, ...unsigned } = required.extensions;
  const { [BAZAAR]: _bazaar, ...least } = unsigned;
  const described = slim === undefined ? [] : [{ ...least, [BAZAAR]: slim }];
  // EIP-712 is the shorter of the two signature formats.
  const offers = offered?.info.offers.filter(({ format }) => format === 'eip712') ?? [];
  const oneForm = { [OFFER_RECEIPT]: { info: { offers } } };
  const signed =
    offered === undefined ? [] : [unsigned, ...described].map((rest) => ({ ...rest, ...oneForm }));
  for (const extensions of [required.extensions, ...signed, unsigned, ...described, least]) {
    yield { ...required, extensions };
  }
  const { [REFUNDS]: _refunds, ...extensions } = least;
  yield { ...required, extensions };
  const accepts = required.accepts.map(withoutHints);
  yield { ...required, extensions, accepts };
  const smaller = { ...required, extensions, accepts: smallest(accepts) };
  yield smaller;
  const { [BOUND_NONCE]: _bound, ...fewest } = extensions;
  const { serviceName: _name, tags: _tags, ...resource } = required.resource;
  const shortest = { ...smaller, extensions: fewest, resource };
  yield shortest;
  const networks = [...new Set(shortest.accepts.map(({ network }) => network))];
  for (let count = networks.length - 1; count > 0; count -= 1) {
    yield ofNetworks(shortest, new Set(networks.slice(0, count)));
  }
}

/** `eip191` comes before `eip1271`, because clients take the first match. */
export function signInChains(offers: readonly { readonly network: string }[]) {
  const networks = offers.map(({ network }) => network);
  // Contract wallets sign in on the first EVM network.
  const forContracts = networks.find(isEvm);
  return networks.flatMap((chainId) => {
    const forKey = { chainId, type: isEvm(chainId) ? 'eip191' : 'ed25519' };
    return chainId === forContracts ? [forKey, { chainId, type: 'eip1271' }] : [forKey];
  });
}

/** The options and sign-in chains of some networks. */
function ofNetworks(required: Required402, networks: ReadonlySet<string>): Json {
  const accepts = required.accepts.filter(({ network }) => networks.has(network));
  const { [SIGN_IN]: challenge, ...extensions } = required.extensions;
  if (challenge === undefined) return { ...required, accepts };
  const supportedChains = challenge.supportedChains.filter(({ chainId }) => networks.has(chainId));
  return {
    ...required,
    accepts,
    extensions: { [SIGN_IN]: { ...challenge, supportedChains }, ...extensions },
  };
}

function withoutHints(option: PaymentOption): PaymentOption {
  const { minimumTopUpUsd: _least, suggestedTopUpUsd: _suggested, ...extra } = option.extra;
  return { ...option, extra };
}

function smallest(options: readonly PaymentOption[]): readonly PaymentOption[] {
  const isOf = (option: PaymentOption) => (other: PaymentOption) =>
    other.network === option.network && other.scheme === option.scheme;
  return options.filter((option) =>
    options.filter(isOf(option)).every(({ amount }) => BigInt(option.amount) <= BigInt(amount)),
  );
}
