/**
 * A payment of the scheme `upto`: `{permit2Authorization, signature}`, by which a wallet lets this
 * server move at most what it signed, once. It is read here, held against what is offered, and put into
 * the words that are signed and called; what the chain shows of it is `evidence.ts`.
 *
 * A wallet that has not approved Permit2 signs that too (EIP-2612, the extension `eip2612GasSponsoring`),
 * and the one transaction that moves its tokens brings the approval, of the ceiling and no more.
 *
 * Nobody else can move it: Permit2 takes the call of the proxy alone, and the proxy that of the
 * facilitator in the witness, which is our gas key.
 */
import { type Hex, parseAbi } from 'viem';
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
  refusePayment,
} from '../payment.ts';
import type { RailOffer } from '../requirements.ts';
import { checkTransfer, readAddress, readUint, SIGNATURE } from './payload.ts';
import { keyForm } from './signature-form.ts';

type Fields = NonNullable<ReturnType<typeof asObject>>;

/** At the same addresses on every chain. */
export const PERMIT2: Hex = '0x000000000022D473030F116dDEE9F6B43aC78BA3';
export const UPTO_PROXY: Hex = '0x4020A4f3b7b90ccA423B9fabCc0CE57C6C240002';

export const PERMIT2_ABI = parseAbi([
  'function nonceBitmap(address owner, uint256 word) view returns (uint256)',
]);
export const UPTO_ABI = parseAbi([
  'struct TokenPermissions { address token; uint256 amount; }',
  'struct PermitTransferFrom { TokenPermissions permitted; uint256 nonce; uint256 deadline; }',
  'struct Witness { address to; address facilitator; uint256 validAfter; }',
  'struct EIP2612Permit { uint256 value; uint256 deadline; bytes32 r; bytes32 s; uint8 v; }',
  'function settle(PermitTransferFrom permit, uint256 amount, address owner, Witness witness, bytes signature)',
  'function settleWithPermit(EIP2612Permit permit2612, PermitTransferFrom permit, uint256 amount, address owner, Witness witness, bytes signature)',
]);

/** EIP-712 types of what the payer signs. */
const PERMIT_TYPES = {
  PermitWitnessTransferFrom: [
    { name: 'permitted', type: 'TokenPermissions' },
    { name: 'spender', type: 'address' },
    { name: 'nonce', type: 'uint256' },
    { name: 'deadline', type: 'uint256' },
    { name: 'witness', type: 'Witness' },
  ],
  TokenPermissions: [
    { name: 'token', type: 'address' },
    { name: 'amount', type: 'uint256' },
  ],
  Witness: [
    { name: 'to', type: 'address' },
    { name: 'facilitator', type: 'address' },
    { name: 'validAfter', type: 'uint256' },
  ],
} as const;

/**
 * Clients sign for as long as the 402 says, an hour at most. What is used and not found is pursued until
 * then, and a signature that has served a request is remembered for longer (`passes.ts`).
 */
const MAX_LIFE_MS = 2 * HOUR_MS;

/** What the payer of an `upto` payment signs (EIP-712). */
export function permit2TypedData(network: string, permit: Permit2) {
  const { token, ceiling: amount, nonce, deadline, to, facilitator, validAfter } = permit;
  return {
    domain: {
      name: 'Permit2',
      chainId: Number(network.slice('eip155:'.length)),
      verifyingContract: PERMIT2,
    },
    types: PERMIT_TYPES,
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

/** Of the ceiling, until a request says how much of it is moved. Throws a 400 Fault for anything but a well-formed payment. */
export function readPermit2(
  { network, inner, identifier }: Envelope,
  offer: RailOffer,
): SignedPayment {
  const fields = asObject(inner['permit2Authorization']);
  const permitted = asObject(fields?.['permitted']);
  const terms = asObject(fields?.['witness']);
  const signature = inner['signature'];
  if (fields === undefined || permitted === undefined || terms === undefined) {
    throw invalidPayment('The permit2Authorization needs the objects permitted and witness');
  }
  if (typeof signature !== 'string' || !SIGNATURE.test(signature)) {
    throw invalidPayment('The payload needs the signature of its authorization as hex');
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
  // Numbers in one form: two spellings of a nonce are one authorization.
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
    // The signature is left out: the same authorization may be signed twice. Not so the approval: who
    // shows a payment again cannot put another one in its place.
    hash: sha256Hex(JSON.stringify({ ...permit2Authorization, eip2612 }).toLowerCase()),
    identifier,
  };
}

/** What the token takes: 65 bytes. */
const APPROVAL_SIGNATURE = /^0x[0-9a-fA-F]{130}$/;
const APPROVAL = 'approval (eip2612GasSponsoring)';

/**
 * The approval that is signed beside a payment, in the words of the extension; `undefined` for one that
 * gives back what the 402 has said. The proxy takes it for the ceiling alone. Throws a 400 Fault.
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
    throw refusePayment(
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

/** Holds a new one against what is offered. Throws a 400 Fault. */
export function checkPermit2(permit: Permit2, offer: RailOffer, nowMs: number): void {
  const { upto } = offer;
  if (upto === undefined) {
    throw refusePayment('UNSUPPORTED_SCHEME', 'The payment scheme must be exact');
  }
  if (permit.token.toLowerCase() !== offer.asset.toLowerCase()) {
    throw refusePayment('UNSUPPORTED_TOKEN', `The payment token must be ${offer.asset}`);
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
