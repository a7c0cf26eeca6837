/**
 * A payment of the scheme `upto`: `{permit2Authorization, signature}`, with which this server can move at
 * most the signed amount, once. `evm/evidence.ts` finds it on the chain.
 *
 * A wallet that has not approved Permit2 signs the approval too (EIP-2612, the extension
 * `eip2612GasSponsoring`) for exactly the ceiling; the transaction that moves the tokens contains it.
 *
 * Only this server can use the payment: Permit2 accepts calls of the proxy only, and the proxy accepts
 * calls of the facilitator in the witness only, which is our gas key.
 */
import {
  PERMIT2_ADDRESS as PERMIT2,
  uptoPermit2WitnessTypes,
  x402UptoPermit2ProxyAddress as UPTO_PROXY,
} from '@x402/evm';
import { parseAbi } from 'viem';
import { walletIdentity } from '../../core/addresses.ts';
import { HOUR_MS, SECOND_MS } from '../../core/clock.ts';
import { sha256Hex } from '../../core/ids.ts';
import type { Envelope } from '../envelope.ts';
import { asObject } from '../header-codec.ts';
import {
  type Permit2,
  type SignedPayment,
  invalidPayment,
  paymentId,
  paymentError,
} from '../payment.ts';
import type { RailOffer } from '../requirements.ts';
import { checkTransfer, keyForm, readAddress, readUint, SIGNATURE } from '../evm/payload.ts';

type Fields = NonNullable<ReturnType<typeof asObject>>;

export const NONCE_ABI = parseAbi([
  'function nonceBitmap(address owner, uint256 word) view returns (uint256)',
]);

/**
 * Clients sign for the time in the 402, at most an hour. Passes are stored for longer (`payment-passes.ts`).
 */
const MAX_LIFE_MS = 2 * HOUR_MS;

export function permit2TypedData(network: string, permit: Permit2) {
  const { token, ceiling: amount, nonce, deadline, to, facilitator, validAfter } = permit;
  return {
    domain: {
      name: 'Permit2',
      chainId: Number(network.slice('eip155:'.length)),
      verifyingContract: PERMIT2,
    },
    types: uptoPermit2WitnessTypes,
    primaryType: 'PermitWitnessTransferFrom' as const,
    message: {
      permitted: { token, amount },
      spender: UPTO_PROXY,
      nonce,
      deadline,
      witness: { to, facilitator, validAfter },
    },
  };
}

/** Reads a payment whose amount is its ceiling. Throws a 400 Fault for a malformed payment. */
export function readPermit2(
  { network, inner, identifier }: Envelope,
  offer: RailOffer,
): SignedPayment {
  const fields = asObject(inner['permit2Authorization']);
  const permitted = asObject(fields?.['permitted']);
  const terms = asObject(fields?.['witness']);
  const signature = inner['signature'];
  if (fields === undefined || permitted === undefined || terms === undefined) {
    throw invalidPayment('The permit2Authorization must have the objects permitted and witness');
  }
  if (typeof signature !== 'string' || !SIGNATURE.test(signature)) {
    throw invalidPayment('The payload must have the signature of its authorization as hex');
  }
  const from = readAddress(fields, 'from', 'INVALID_PAYMENT_PAYER');
  const spender = readAddress(fields, 'spender', 'INVALID_PAYMENT');
  const token = readAddress(permitted, 'token', 'UNSUPPORTED_TOKEN');
  const ceiling = readUint(permitted, 'amount', 'INVALID_AMOUNT');
  const nonce = readUint(fields, 'nonce', 'INVALID_PAYMENT');
  const deadline = readUint(fields, 'deadline', 'INVALID_PAYMENT');
  const to = readAddress(terms, 'to', 'INVALID_PAYMENT_RECIPIENT');
  const facilitator = readAddress(terms, 'facilitator', 'INVALID_PAYMENT');
  const validAfter = readUint(terms, 'validAfter', 'INVALID_PAYMENT');
  if (spender.toLowerCase() !== UPTO_PROXY.toLowerCase()) {
    throw invalidPayment(`The spender of the authorization must be the upto proxy ${UPTO_PROXY}`);
  }
  const wallet = walletIdentity(from);
  const key = `${network}/permit2:${wallet}:${nonce}`;
  // Numbers are normalised, so that two spellings of a nonce are one authorization.
  const permit2Authorization = {
    from,
    permitted: { token, amount: ceiling.toString() },
    spender,
    nonce: nonce.toString(),
    deadline: deadline.toString(),
    witness: { to, facilitator, validAfter: validAfter.toString() },
  };
  const eip2612 = readApproval(asObject(inner['eip2612']), { from, token, ceiling });
  return {
    key,
    id: paymentId(key),
    network,
    wallet,
    amountUnits: ceiling,
    offer,
    authorization: {
      kind: 'permit2',
      from,
      to,
      token,
      ceiling,
      nonce,
      deadline,
      validAfter,
      facilitator,
    },
    inner: { permit2Authorization, signature, ...(eip2612 && { eip2612 }) },
    // Without the signature, because the same authorization may be signed twice; with the approval, because
    // a repeated header must not replace it.
    hash: sha256Hex(JSON.stringify({ ...permit2Authorization, eip2612 }).toLowerCase()),
    identifier,
  };
}

const APPROVAL_SIGNATURE = /^0x[0-9a-fA-F]{130}$/;
const APPROVAL = 'approval (eip2612GasSponsoring)';

/**
 * The signed approval of a payment; `undefined` for the unsigned echo of the 402. The proxy accepts an
 * approval of exactly the ceiling. Throws a 400 Fault.
 */
function readApproval(
  info: Fields | undefined,
  { from, token, ceiling }: Pick<Permit2, 'from' | 'token' | 'ceiling'>,
): Fields | undefined {
  const signature = info?.['signature'];
  if (info === undefined || signature === undefined) return undefined;
  if (typeof signature !== 'string' || !APPROVAL_SIGNATURE.test(signature)) {
    throw invalidPayment(`The signature of the ${APPROVAL} must be 65 bytes as hex`);
  }
  for (const [name, wanted] of Object.entries({ from, asset: token, spender: PERMIT2 })) {
    const value = info[name];
    if (typeof value !== 'string' || value.toLowerCase() !== wanted.toLowerCase()) {
      throw invalidPayment(`The field ${name} of the ${APPROVAL} must be ${wanted}`);
    }
  }
  if (readUint(info, 'amount', 'INVALID_AMOUNT', APPROVAL) !== ceiling) {
    throw paymentError(
      'INVALID_AMOUNT',
      `The field amount of the ${APPROVAL} must be the ceiling of ${ceiling} base units`,
    );
  }
  return {
    from,
    asset: token,
    spender: PERMIT2,
    amount: ceiling.toString(),
    nonce: readUint(info, 'nonce', 'INVALID_PAYMENT', APPROVAL).toString(),
    deadline: readUint(info, 'deadline', 'INVALID_PAYMENT', APPROVAL).toString(),
    signature: keyForm(signature),
    version: '1',
  };
}

export function checkPermit2(permit: Permit2, offer: RailOffer, nowMs: number): void {
  const { upto } = offer;
  if (upto === undefined) {
    throw paymentError('UNSUPPORTED_SCHEME', 'The payment scheme must be exact');
  }
  if (permit.token.toLowerCase() !== offer.asset.toLowerCase()) {
    throw paymentError('UNSUPPORTED_TOKEN', `The payment token must be ${offer.asset}`);
  }
  checkTransfer(permit, offer);
  if (permit.facilitator.toLowerCase() !== upto.facilitatorAddress.toLowerCase()) {
    throw invalidPayment(
      `The facilitator of the authorization must be ${upto.facilitatorAddress}, as extra says`,
    );
  }
  if (permit.deadline > BigInt(Math.floor((nowMs + MAX_LIFE_MS) / SECOND_MS))) {
    throw invalidPayment('The deadline of the authorization must be within two hours');
  }
}
