/** Puts a transaction into the bytes that a node takes. */
import {
  type Hex,
  type TransactionSerializable,
  keccak256,
  parseSignature,
  serializeTransaction,
} from 'viem';
import type { EvmKey } from '../evm-key.ts';

/** The bytes of a transaction with the signature of this key; the same each time. */
export function signTransaction(key: EvmKey, transaction: TransactionSerializable): Hex {
  const signature = key.sign(keccak256(serializeTransaction(transaction), 'bytes'));
  return serializeTransaction(transaction, parseSignature(signature));
}
