/**
 * Reads the inner payload of a Solana payment: a partly signed v0 transaction whose third
 * instruction is one `TransferChecked` to the token account of our receiver. The full list of rules
 * is the official scheme's; what is checked here gives the documented codes, and the limits.
 */
import {
  address,
  decompileTransactionMessage,
  getCompiledTransactionMessageDecoder,
} from '@solana/kit';
import type { Instruction, Transaction } from '@solana/kit';
import { findAssociatedTokenPda, TOKEN_PROGRAM_ADDRESS } from '@solana-program/token';
import { type AmountLimits, type Envelope, checkAccepted, checkAmount } from '../envelope.ts';
import { type SignedPayment, paymentId, refusePayment } from '../payment.ts';
import type { RailOffer } from '../requirements.ts';
import { decodeWire, messageHash } from './chain.ts';
/** A transaction has at most 1,232 bytes, 1,644 characters of base64. */
const MAX_WIRE_CHARS = 1_644;
const BASE64 = /^[A-Za-z0-9+/]+={0,2}$/;
const TRANSFER_INDEX = 2;
const TOKEN_2022_PROGRAM = address('TokenzQdBNbLqP5VEhdkAS6EPFLC1PHnBqCXEpPxuEb');
/** The instruction's number, its amount and the decimals. */
const TRANSFER_CHECKED = 12;
const TRANSFER_CHECKED_BYTES = 10;

interface Transfer {
  readonly program: string;
  readonly amount: bigint;
  readonly source: string;
  readonly mint: string;
  readonly destination: string;
  readonly authority: string;
  readonly feePayer: string;
  /** Accounts of all instructions. */
  readonly touched: ReadonlySet<string>;
}

/**
 * Throws a 400 Fault for anything but a well-formed payment. With limits it is held against the
 * offer and them; without, its shape alone is read.
 */
export async function readSolanaPayment(
  envelope: Envelope,
  offer: RailOffer,
  limits: AmountLimits | undefined,
): Promise<SignedPayment> {
  const wire = envelope.inner['transaction'];
  if (typeof wire !== 'string' || wire.length > MAX_WIRE_CHARS || !BASE64.test(wire)) {
    throw refusePayment('INVALID_PAYMENT', 'The payload needs a base64 transaction');
  }
  if (limits !== undefined) checkAccepted(envelope.accepted, offer);
  const { transaction, transfer } = decodeTransfer(wire);
  if (limits !== undefined) {
    await checkTransfer(transfer, offer);
    checkAmount(transfer.amount, limits);
  }
  const hash = messageHash(transaction);
  const key = `${envelope.network}/tx:${hash}`;
  return {
    key,
    id: paymentId(key),
    network: envelope.network,
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
    identifier: envelope.identifier,
  };
}

function decodeTransfer(wire: string): { transaction: Transaction; transfer: Transfer } {
  let decoded: { transaction: Transaction; transfer: Transfer | undefined };
  try {
    const transaction = decodeWire(wire);
    decoded = { transaction, transfer: findTransfer(transaction) };
  } catch {
    // The kit throws many kinds of errors on bytes that are no transaction.
    throw refusePayment('INVALID_PAYMENT', 'The transaction cannot be decoded');
  }
  const { transaction, transfer } = decoded;
  if (transfer === undefined) {
    throw refusePayment('INVALID_PAYMENT', 'The third instruction must be one TransferChecked');
  }
  return { transaction, transfer };
}

function findTransfer(transaction: Transaction): Transfer | undefined {
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
    touched: new Set(
      instructions.flatMap((one) => (one.accounts ?? []).map((account) => account.address)),
    ),
  };
}

async function checkTransfer(transfer: Transfer, offer: RailOffer): Promise<void> {
  if (transfer.mint !== offer.asset) {
    throw refusePayment('UNSUPPORTED_TOKEN', `The payment token must be ${offer.asset}`);
  }
  const [expected] = await findAssociatedTokenPda({
    owner: address(offer.payTo),
    mint: address(offer.asset),
    tokenProgram: address(transfer.program),
  });
  if (transfer.destination !== expected) {
    throw refusePayment(
      'INVALID_PAYMENT_RECIPIENT',
      `The payment must go to the token account ${expected} of ${offer.payTo}`,
    );
  }
  const feePayer = offer.extra['feePayer'];
  if (transfer.feePayer !== feePayer) {
    throw refusePayment('INVALID_PAYMENT', `The fee payer of the transaction must be ${feePayer}`);
  }
  if (transfer.touched.has(feePayer) || transfer.authority === offer.payTo) {
    throw refusePayment(
      'INVALID_PAYMENT_PAYER',
      'The fee payer and the receiver cannot be the payer',
    );
  }
}
