/**
 * Reads the inner payload of a Solana payment: a partly signed v0 transaction whose third instruction is
 * one `TransferChecked` to the token account of our receiver. The official scheme checks the other rules;
 * the checks here return the documented error codes.
 */
import {
  type Instruction,
  type Transaction,
  address,
  decompileTransactionMessage,
  getCompiledTransactionMessageDecoder,
} from '@solana/kit';
import { findAssociatedTokenPda, TOKEN_PROGRAM_ADDRESS } from '@solana-program/token';
import { assert } from '../../core/assert.ts';
import type { Envelope } from '../envelope.ts';
import {
  type SignedPayment,
  type SolanaPayment,
  invalidPayment,
  paymentId,
  paymentError,
} from '../payment.ts';
import type { RailOffer } from '../requirements.ts';
import { decodeWire, messageHash } from './chain.ts';

/** A transaction has at most 1,232 bytes, 1,644 characters of base64. */
const MAX_WIRE_CHARS = 1_644;
const BASE64 = /^[A-Za-z0-9+/]+={0,2}$/;
const TRANSFER_INDEX = 2;
const TOKEN_2022_PROGRAM = address('TokenzQdBNbLqP5VEhdkAS6EPFLC1PHnBqCXEpPxuEb');
const TRANSFER_CHECKED = 12;
/** Instruction number, amount and decimals. */
const TRANSFER_CHECKED_BYTES = 10;

export function readSolanaPayment(
  { network, inner, identifier }: Envelope,
  offer: RailOffer,
): SignedPayment {
  const wire = inner['transaction'];
  if (typeof wire !== 'string' || wire.length > MAX_WIRE_CHARS || !BASE64.test(wire)) {
    throw invalidPayment('The payload must have a base64 transaction');
  }
  const { transaction, transfer } = decodeTransfer(wire);
  const hash = messageHash(transaction);
  const key = `${network}/tx:${hash}`;
  return {
    key,
    id: paymentId(key),
    network,
    wallet: transfer.authority,
    amountUnits: transfer.amount,
    offer,
    authorization: {
      kind: 'solana',
      transaction: wire,
      messageHash: hash,
      source: transfer.source,
    },
    inner: { transaction: wire },
    hash,
    identifier,
  };
}

type Transfer = NonNullable<ReturnType<typeof findTransfer>>;

function decodeTransfer(wire: string): { transaction: Transaction; transfer: Transfer } {
  let transaction: Transaction;
  let transfer: Transfer | undefined;
  try {
    transaction = decodeWire(wire);
    transfer = findTransfer(transaction);
  } catch {
    // The kit throws many kinds of errors on bytes that are no transaction.
    throw invalidPayment('The transaction cannot be decoded');
  }
  if (transfer === undefined) {
    throw invalidPayment('The third instruction must be one TransferChecked');
  }
  return { transaction, transfer };
}

function findTransfer(transaction: Transaction) {
  const compiled = getCompiledTransactionMessageDecoder().decode(transaction.messageBytes);
  const message = decompileTransactionMessage(compiled);
  const instructions: readonly Instruction[] = message.instructions;
  const instruction = instructions[TRANSFER_INDEX];
  const data = Buffer.from((instruction?.data ?? []) as Uint8Array); // read only
  const [source, mint, destination, authority] = instruction?.accounts ?? [];
  const isToken =
    instruction?.programAddress === TOKEN_PROGRAM_ADDRESS ||
    instruction?.programAddress === TOKEN_2022_PROGRAM;
  const isTransfer = data.length >= TRANSFER_CHECKED_BYTES && data[0] === TRANSFER_CHECKED;
  if (!isToken || !isTransfer || !source || !mint || !destination || !authority) return undefined;
  return {
    program: instruction.programAddress,
    amount: data.readBigUInt64LE(1),
    source: source.address,
    mint: mint.address,
    destination: destination.address,
    authority: authority.address,
    feePayer: message.feePayer.address,
    usesFeePayer: usesFeePayer(transaction),
  };
}

/**
 * Whether an instruction has the fee payer as an account. Its program could then spend the SOL of the fee
 * payer, also the program of a transfer hook, which the mint of the payer can name.
 */
export function usesFeePayer({ messageBytes }: Transaction): boolean {
  const { instructions } = getCompiledTransactionMessageDecoder().decode(messageBytes);
  // The first account of a message is its fee payer.
  return instructions.some(({ accountIndices = [] }) => accountIndices.includes(0));
}

export async function checkTransfer(payment: SignedPayment, offer: RailOffer): Promise<void> {
  const { transfer } = decodeTransfer(solanaOf(payment).transaction);
  if (transfer.mint !== offer.asset) {
    throw paymentError('UNSUPPORTED_TOKEN', `The payment token must be ${offer.asset}`);
  }
  const [expected] = await findAssociatedTokenPda({
    owner: address(offer.payTo),
    mint: transfer.mint,
    tokenProgram: transfer.program,
  });
  if (transfer.destination !== expected) {
    throw paymentError(
      'INVALID_PAYMENT_RECIPIENT',
      `The payment must go to the token account ${expected} of ${offer.payTo}`,
    );
  }
  const feePayer = offer.extra['feePayer'];
  if (transfer.feePayer !== feePayer) {
    throw invalidPayment(`The fee payer of the transaction must be ${feePayer}`);
  }
  // A delegate of the receiver could move its tokens in a circle.
  const isCircle = transfer.source === expected || transfer.authority === offer.payTo;
  if (transfer.usesFeePayer || isCircle) {
    throw paymentError(
      'INVALID_PAYMENT_PAYER',
      'The fee payer and the receiver cannot be the payer',
    );
  }
}

export function solanaOf({ authorization }: SignedPayment): SolanaPayment {
  assert(authorization.kind === 'solana', 'not a Solana payment');
  return authorization;
}
