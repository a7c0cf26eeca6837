/**
 * Refunds on Base: an ERC-3009 authorization of the refund key, whose nonce is derived from the id of the
 * refund. So the chain executes a refund at most once, and it is found on the chain like a top-up.
 */
import { type Hex, encodeFunctionData, hashTypedData, hexToBytes, parseSignature } from 'viem';
import { sha256Hex } from '../../core/ids.ts';
import { EvmKey } from '../evm-key.ts';
import type { Erc3009 } from '../payment.ts';
import type { Attempt, Evidence, RefundRail } from '../rail.ts';
import type { RailOffer } from '../requirements.ts';
import { type NewestBlock, TOKEN_ABI, transferTypedData } from './chain.ts';
import type { EvmSender } from './sender.ts';

/** A refund that is not on the chain after a day is credited back. */
const VALID_SECONDS = 86_400n;

/** The JSON of a row; whole numbers are text. */
interface Signed {
  readonly id: string;
  readonly from: Hex;
  readonly to: Hex;
  readonly value: string;
  readonly validBefore: string;
  readonly nonce: Hex;
  readonly signature: Hex;
}

export interface EvmRefundOptions {
  readonly refundKey: Hex | undefined;
  readonly newestBlock: () => Promise<NewestBlock>;
  readonly sender: EvmSender | undefined;
  readonly offer: RailOffer;
  readonly find: (payment: Erc3009, attempt: Attempt) => Promise<Evidence>;
}

export function evmRefunds(options: EvmRefundOptions): RefundRail | undefined {
  const { refundKey, newestBlock, sender, offer, find } = options;
  if (refundKey === undefined || sender === undefined) return undefined;
  const key = new EvmKey(hexToBytes(refundKey));
  return {
    authorize: async (refundId, wallet, value) => {
      const block = await newestBlock();
      const validBefore = block.timestamp + VALID_SECONDS;
      const from = key.address;
      const to = wallet as Hex; // an EVM identity, checked by the caller
      const nonce: Hex = `0x${sha256Hex(`farebox-refund:${refundId}`)}`;
      const transfer = { from, to, value, validAfter: 0n, validBefore, nonce };
      const digest = hashTypedData(transferTypedData(offer, transfer));
      const signed: Signed = {
        id: refundId,
        from,
        to,
        value: value.toString(),
        validBefore: validBefore.toString(),
        nonce,
        signature: key.sign(hexToBytes(digest)),
      };
      return { text: JSON.stringify(signed), startHeight: block.number, expiresAt: validBefore };
    },
    send: async (text, raw, journal) => {
      // Another transaction of the authorization would cost gas and have no effect.
      if (raw !== undefined && (await sender.rebroadcast(raw as Hex)) === 'sent') return; // ours
      const { id, transfer, signature } = readSigned(text);
      const { from, to, value, validAfter, validBefore, nonce } = transfer;
      const { r, s, yParity } = parseSignature(signature);
      const data = encodeFunctionData({
        abi: TOKEN_ABI,
        functionName: 'transferWithAuthorization',
        args: [from, to, value, validAfter, validBefore, nonce, 27 + yParity, r, s],
      });
      const call = { to: offer.asset as Hex, data }; // a valid EVM address
      await sender.send(call, async (transaction, raw) => await journal(id, transaction, raw));
    },
    find: async (text, attempt) => await find(readSigned(text).transfer, attempt),
  };
}

function readSigned(text: string): { id: string; transfer: Erc3009; signature: Hex } {
  const { id, signature, ...signed } = JSON.parse(text) as Signed; // written by `authorize`
  const transfer = {
    ...signed,
    kind: 'erc3009' as const,
    value: BigInt(signed.value),
    validAfter: 0n,
    validBefore: BigInt(signed.validBefore),
  };
  return { id, transfer, signature };
}
