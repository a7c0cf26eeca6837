/**
 * The few facts of the SPL Token programs that payments need: program addresses, the associated
 * account of an owner, and the `TransferChecked` instruction.
 */
import { address, getAddressEncoder, getProgramDerivedAddress } from '@solana/kit';
import type { Address } from '@solana/kit';

export const TOKEN_PROGRAM = address('TokenkegQfeZyiNwAJbNbGKPFXCWuBvf9Ss623VQ5DA');
export const TOKEN_2022_PROGRAM = address('TokenzQdBNbLqP5VEhdkAS6EPFLC1PHnBqCXEpPxuEb');
export const ASSOCIATED_TOKEN_PROGRAM = address('ATokenGPvbdGVxr1b2hvZbsiqW5xWH25efTNsLJA8knL');
export const SYSTEM_PROGRAM = address('11111111111111111111111111111111');

const TRANSFER_CHECKED = 12;
const TRANSFER_CHECKED_BYTES = 10;
const CREATE_IDEMPOTENT = 1;

/** The associated token account of an owner. */
export async function associatedAccount(
  owner: Address,
  mint: Address,
  program: Address = TOKEN_PROGRAM,
): Promise<Address> {
  const encoder = getAddressEncoder();
  const [account] = await getProgramDerivedAddress({
    programAddress: ASSOCIATED_TOKEN_PROGRAM,
    seeds: [encoder.encode(owner), encoder.encode(program), encoder.encode(mint)],
  });
  return account;
}

/** Amount of a `TransferChecked` instruction, or `undefined` when the data is of another one. */
export function transferCheckedAmount(data: Uint8Array | undefined): bigint | undefined {
  if (data === undefined || data.length < TRANSFER_CHECKED_BYTES || data[0] !== TRANSFER_CHECKED) {
    return undefined;
  }
  return Buffer.from(data).readBigUInt64LE(1);
}

export function transferCheckedData(amount: bigint, decimals: number): Uint8Array {
  const data = Buffer.alloc(TRANSFER_CHECKED_BYTES);
  data[0] = TRANSFER_CHECKED;
  data.writeBigUInt64LE(amount, 1);
  data[9] = decimals;
  return data;
}

export function createIdempotentData(): Uint8Array {
  return Uint8Array.of(CREATE_IDEMPOTENT);
}
