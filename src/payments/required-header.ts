/**
 * The value of `PAYMENT-REQUIRED`: as much of a 402 as fits into the bytes that the payment headers of a
 * response have. The body of the response has all of it.
 */
import { encodeHeader } from './header-codec.ts';
import { OFFER_RECEIPT, type OfferedOption, type SignedOffer } from './extensions/signing.ts';

type Json = Readonly<Record<string, unknown>>;

export const REFUNDS = 'refund-policy';
export const BAZAAR = 'bazaar';
export const BOUND_NONCE = 'bound-nonce';
/** Bytes of a header line beside its value: the name, the separator and the end. */
export const HEADER_FRAME_BYTES = 'PAYMENT-REQUIRED: \r\n'.length;

/** Data for indexes, of which the shorter form goes into a header with less room. */
interface Discovered {
  readonly slim: Json;
}

interface PaymentOption extends OfferedOption {
  readonly extra: Json;
}

export interface Required402 extends Json {
  readonly resource: Json & { readonly url: string };
  readonly accepts: readonly PaymentOption[];
  readonly extensions: Json & {
    readonly [OFFER_RECEIPT]?: { readonly info: { readonly offers: readonly SignedOffer[] } };
  };
}

/** As much of a 402 as fits into so many bytes; the body has all of it. */
export function fittedHeader(
  required: Required402,
  discovered: Discovered | undefined,
  mostBytes: number,
): string {
  let header = '';
  for (const form of headerForms(required, discovered)) {
    header = encodeHeader(form);
    if (header.length <= mostBytes) break;
  }
  return header;
}

/**
 * A 402 with ever less in it. Signed offers go first, then what indexes read, then the terms and hints, and
 * last the options with the larger amount: with what is left a client can still pay and sign in.
 */
function* headerForms(required: Required402, discovered: Discovered | undefined): Generator<Json> {
  const { [OFFER_RECEIPT]: offered, ...unsigned } = required.extensions;
  const { [BAZAAR]: _bazaar, ...least } = unsigned;
  const described = discovered === undefined ? [] : [{ ...least, [BAZAAR]: discovered.slim }];
  // Signed offers in the shorter of their forms, then with less for indexes.
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
  yield { ...smaller, extensions: fewest, resource };
}

/** An option without the amounts of top-ups, which are not signed. */
function withoutHints(option: PaymentOption): PaymentOption {
  const { minimumTopUpUsd: _least, suggestedTopUpUsd: _suggested, ...extra } = option.extra;
  return { ...option, extra };
}

/** The options with the smallest amount of each network and scheme. */
function smallest(options: readonly PaymentOption[]): readonly PaymentOption[] {
  const isOf = (option: PaymentOption) => (other: PaymentOption) =>
    other.network === option.network && other.scheme === option.scheme;
  return options.filter((option) =>
    options.filter(isOf(option)).every(({ amount }) => BigInt(option.amount) <= BigInt(amount)),
  );
}
