/**
 * Refunds on Solana: one transaction with a fixed blockhash, signed once and kept. The cluster
 * executes it at most once; when its blockhash has expired without a status it never will be.
 */
import {
  address,
  appendTransactionMessageInstructions,
  AccountRole,
  blockhash,
  createTransactionMessage,
  getBase64EncodedWireTransaction,
  partiallySignTransactionMessageWithSigners,
  pipe,
  setTransactionMessageFeePayerSigner,
  setTransactionMessageLifetimeUsingBlockhash,
} from '@solana/kit';
import type { Address, Instruction, KeyPairSigner } from '@solana/kit';
import { USDC_DECIMALS } from '../networks.ts';
import type { Attempt, Evidence, RefundRail } from '../rail.ts';
import type { RailOffer } from '../requirements.ts';
import type { SolanaSettings } from '../settings.ts';
import { decodeWire, messageHash, transactionId } from './chain.ts';
import type { SolanaChain } from './chain.ts';
import type { SolanaPayment } from './evidence.ts';
import { readSolanaKey } from './keys.ts';
import {
  ASSOCIATED_TOKEN_PROGRAM,
  associatedAccount,
  createIdempotentData,
  SYSTEM_PROGRAM,
  TOKEN_PROGRAM,
  transferCheckedData,
} from './token.ts';

interface Signed {
  readonly id: string;
  readonly wire: string;
  readonly source: string;
}

export interface SolanaRefundOptions {
  readonly settings: SolanaSettings;
  readonly chain: SolanaChain;
  readonly feePayer: KeyPairSigner | undefined;
  readonly offer: RailOffer;
  /** What the nodes show of a transaction. */
  readonly find: (
    payment: SolanaPayment,
    attempt: Attempt,
    depth: 'confirmed',
  ) => Promise<Evidence>;
}

/** `undefined` without a refund key or a fee payer of our own. */
export async function solanaRefunds(options: SolanaRefundOptions): Promise<RefundRail | undefined> {
  const { settings, chain, feePayer, offer } = options;
  if (settings.refundKey === undefined || feePayer === undefined) return undefined;
  const treasury = await readSolanaKey(settings.refundKey);
  const mint = address(offer.asset);
  const source = await associatedAccount(treasury.address, mint);
  return {
    authorize: async (refundId, wallet, amountUnits) => {
      const [recent, height] = await Promise.all([
        chain.latestBlockhash(),
        chain.height('confirmed'),
      ]);
      const owner = address(wallet);
      const destination = await associatedAccount(owner, mint);
      const message = pipe(
        createTransactionMessage({ version: 0 }),
        (draft) => setTransactionMessageFeePayerSigner(feePayer, draft),
        (draft) =>
          setTransactionMessageLifetimeUsingBlockhash(
            {
              blockhash: blockhash(recent.blockhash),
              lastValidBlockHeight: recent.lastValidBlockHeight,
            },
            draft,
          ),
        (draft) =>
          appendTransactionMessageInstructions(
            [
              createAccount(feePayer.address, destination, owner, mint),
              transfer({ source, mint, destination, treasury, amountUnits }),
            ],
            draft,
          ),
      );
      const wire = getBase64EncodedWireTransaction(
        await partiallySignTransactionMessageWithSigners(message),
      );
      const signed: Signed = { id: refundId, wire, source };
      return {
        text: JSON.stringify(signed),
        startHeight: height,
        expiresAt: recent.lastValidBlockHeight,
      };
    },
    send: async (text, journal) => {
      const { id, wire } = JSON.parse(text) as Signed; // written by authorize
      await journal(id, transactionId(decodeWire(wire)), wire);
      await chain.send(wire);
    },
    find: async (text, attempt) => {
      const { wire, source: from } = JSON.parse(text) as Signed; // written by authorize
      const transaction = decodeWire(wire);
      return await options.find(
        { kind: 'solana', transaction: wire, messageHash: messageHash(transaction), source: from },
        { ...attempt, transaction: transactionId(transaction) },
        'confirmed',
      );
    },
  };
}

/** Does nothing when the wallet still has its token account. */
function createAccount(
  payer: Address,
  account: Address,
  owner: Address,
  mint: Address,
): Instruction {
  return {
    programAddress: ASSOCIATED_TOKEN_PROGRAM,
    accounts: [
      { address: payer, role: AccountRole.WRITABLE_SIGNER },
      { address: account, role: AccountRole.WRITABLE },
      { address: owner, role: AccountRole.READONLY },
      { address: mint, role: AccountRole.READONLY },
      { address: SYSTEM_PROGRAM, role: AccountRole.READONLY },
      { address: TOKEN_PROGRAM, role: AccountRole.READONLY },
    ],
    data: createIdempotentData(),
  };
}

function transfer(options: {
  readonly source: Address;
  readonly mint: Address;
  readonly destination: Address;
  readonly treasury: KeyPairSigner;
  readonly amountUnits: bigint;
}): Instruction {
  const authority = {
    address: options.treasury.address,
    role: AccountRole.READONLY_SIGNER,
    signer: options.treasury,
  };
  return {
    programAddress: TOKEN_PROGRAM,
    accounts: [
      { address: options.source, role: AccountRole.WRITABLE },
      { address: options.mint, role: AccountRole.READONLY },
      { address: options.destination, role: AccountRole.WRITABLE },
      authority,
    ],
    data: transferCheckedData(options.amountUnits, USDC_DECIMALS),
  };
}
