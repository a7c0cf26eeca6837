/**
 * Refunds on Base: an ERC-3009 authorization signed by the refund key, with a nonce that is derived
 * from the refund's id. So a refund can happen at most once whatever is sent how often, and it is
 * found on the chain exactly as a top-up is.
 */
import { encodeFunctionData, parseSignature } from 'viem';
import type { Hex } from 'viem';
import { privateKeyToAccount } from 'viem/accounts';
import { sha256Hex } from '../../core/ids.ts';
import type { Attempt, Evidence, RefundRail } from '../rail.ts';
import type { RailOffer } from '../requirements.ts';
import type { BaseSettings } from '../settings.ts';
import { TOKEN_ABI, TRANSFER_TYPES } from './chain.ts';
import type { EvmClient } from './chain.ts';
import type { Erc3009 } from './evidence.ts';
import type { EvmSender } from './sender.ts';

/** A refund that is not on the chain after a day is given up and credited back. */
const VALID_SECONDS = 86_400n;

interface Authorization {
  readonly id: string;
  readonly from: Hex;
  readonly to: Hex;
  readonly value: string;
  readonly validBefore: string;
  readonly nonce: Hex;
  readonly signature: Hex;
}

export interface EvmRefundOptions {
  readonly settings: BaseSettings;
  readonly client: EvmClient;
  readonly sender: EvmSender | undefined;
  readonly token: Hex;
  readonly chainId: number;
  readonly offer: RailOffer;
  /** What the nodes show of an authorization. */
  readonly find: (payment: Erc3009, attempt: Attempt) => Promise<Evidence>;
}

/** `undefined` without a refund key or a gas key. */
export function evmRefunds(options: EvmRefundOptions): RefundRail | undefined {
  const { settings, client, sender, token, chainId, offer } = options;
  if (settings.refundKey === undefined || sender === undefined) return undefined;
  const account = privateKeyToAccount(settings.refundKey as Hex); // checked by the configuration
  return {
    authorize: async (refundId, wallet, amountUnits) => {
      const block = await client.getBlock();
      const validBefore = block.timestamp + VALID_SECONDS;
      const to = wallet as Hex; // an EVM identity, checked by the caller
      const nonce: Hex = `0x${sha256Hex(`farebox-refund:${refundId}`)}`;
      const signature = await account.signTypedData({
        domain: {
          name: offer.extra['name'] ?? '',
          version: offer.extra['version'] ?? '',
          chainId,
          verifyingContract: token,
        },
        types: TRANSFER_TYPES,
        primaryType: 'TransferWithAuthorization',
        message: {
          from: account.address,
          to,
          value: amountUnits,
          validAfter: 0n,
          validBefore,
          nonce,
        },
      });
      const authorization: Authorization = {
        id: refundId,
        from: account.address,
        to,
        value: amountUnits.toString(),
        validBefore: validBefore.toString(),
        nonce,
        signature,
      };
      return {
        text: JSON.stringify(authorization),
        startHeight: block.number,
        expiresAt: validBefore,
      };
    },
    send: async (text, journal) => {
      const authorization = JSON.parse(text) as Authorization; // written by authorize
      const call = { to: token, data: transferData(authorization) };
      await sender.send(call, async (id, raw) => await journal(authorization.id, id, raw));
    },
    find: async (text, attempt) => {
      const authorization = JSON.parse(text) as Authorization; // written by authorize
      return await options.find(
        {
          kind: 'erc3009',
          from: authorization.from,
          to: authorization.to,
          value: BigInt(authorization.value),
          validAfter: 0n,
          validBefore: BigInt(authorization.validBefore),
          nonce: authorization.nonce,
        },
        attempt,
      );
    },
  };
}

function transferData(authorization: Authorization): Hex {
  const { r, s, yParity } = parseSignature(authorization.signature);
  return encodeFunctionData({
    abi: TOKEN_ABI,
    functionName: 'transferWithAuthorization',
    args: [
      authorization.from,
      authorization.to,
      BigInt(authorization.value),
      0n,
      BigInt(authorization.validBefore),
      authorization.nonce,
      27 + yParity,
      r,
      s,
    ],
  });
}
