/**
 * Refunds on Solana: one transaction with a fixed blockhash, signed once and stored. The cluster executes
 * it at most once, and not after its blockhash has expired.
 */
import {
  address,
  appendTransactionMessageInstructions,
  createTransactionMessage,
  getBase64EncodedWireTransaction,
  partiallySignTransactionMessageWithSigners,
  pipe,
  setTransactionMessageFeePayerSigner,
  setTransactionMessageLifetimeUsingBlockhash,
} from '@solana/kit';
import type { KeyPairSigner } from '@solana/kit';
import {
  findAssociatedTokenPda,
  getCreateAssociatedTokenIdempotentInstruction,
  getTransferCheckedInstruction,
  TOKEN_PROGRAM_ADDRESS,
} from '@solana-program/token';
import { USDC_DECIMALS } from '../networks.ts';
import type { SolanaPayment } from '../payment.ts';
import type { Attempt, Evidence, Position, RefundRail } from '../rail.ts';
import type { RailOffer } from '../requirements.ts';
import { type SolanaRpc, decodeWire, messageHash, sendWire, transactionId } from './chain.ts';

interface Signed {
  readonly id: string;
  readonly wire: string;
  readonly source: string;
}

export interface SolanaRefundOptions {
  readonly treasury: KeyPairSigner | undefined;
  readonly rpc: SolanaRpc;
  readonly feePayer: KeyPairSigner | undefined;
  readonly offer: RailOffer;
  readonly position: () => Promise<Position>;
  /** Called with the id of a transaction before it is sent. */
  readonly sent: (transaction: string) => Promise<unknown>;
  readonly find: (payment: SolanaPayment, attempt: Attempt) => Promise<Evidence>;
}

export async function solanaRefunds(options: SolanaRefundOptions): Promise<RefundRail | undefined> {
  const { treasury, rpc, feePayer, offer, position, sent, find } = options;
  if (treasury === undefined || feePayer === undefined) return undefined;
  const token = { mint: address(offer.asset), tokenProgram: TOKEN_PROGRAM_ADDRESS };
  const [source] = await findAssociatedTokenPda({ ...token, owner: treasury.address });
  return {
    authorize: async (refundId, wallet, amount) => {
      const [{ value: recent }, { startHeight, expiresAt }] = await Promise.all([
        rpc.getLatestBlockhash({ commitment: 'finalized' }).send(),
        position(),
      ]);
      const owner = address(wallet);
      const [destination] = await findAssociatedTokenPda({ ...token, owner });
      const { mint } = token;
      const instructions = [
        // Does nothing if the wallet has a token account.
        getCreateAssociatedTokenIdempotentInstruction({
          payer: feePayer,
          ata: destination,
          owner,
          mint,
        }),
        getTransferCheckedInstruction({
          source,
          mint,
          destination,
          authority: treasury,
          amount,
          decimals: USDC_DECIMALS,
        }),
      ];
      const message = pipe(
        createTransactionMessage({ version: 0 }),
        (draft) => setTransactionMessageFeePayerSigner(feePayer, draft),
        (draft) => setTransactionMessageLifetimeUsingBlockhash(recent, draft),
        (draft) => appendTransactionMessageInstructions(instructions, draft),
      );
      const signed: Signed = {
        id: refundId,
        wire: getBase64EncodedWireTransaction(
          await partiallySignTransactionMessageWithSigners(message),
        ),
        source,
      };
      return { text: JSON.stringify(signed), startHeight, expiresAt };
    },
    send: async (text, _raw, journal) => {
      const { id, wire } = JSON.parse(text) as Signed; // written by `authorize`
      const transaction = transactionId(decodeWire(wire));
      await journal(id, transaction, wire);
      await sent(transaction);
      await sendWire(rpc, wire);
    },
    find: async (text, attempt) => {
      const { wire, source: from } = JSON.parse(text) as Signed; // written by `authorize`
      const transaction = decodeWire(wire);
      return await find(
        { kind: 'solana', transaction: wire, messageHash: messageHash(transaction), source: from },
        { ...attempt, transaction: transactionId(transaction) },
      );
    },
  };
}
