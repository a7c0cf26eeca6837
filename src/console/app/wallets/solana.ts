/**
 * Solana wallets, discovered by the Wallet Standard. A payment is a token transfer with the service as
 * fee payer: the wallet signs its part, the service adds its signature and sends the transaction. The
 * offer contains a recent blockhash, so that this code calls no node.
 */
import {
  type Address,
  type Blockhash,
  type Instruction,
  AccountRole,
  address as addressOf,
  appendTransactionMessageInstructions,
  compileTransaction,
  createTransactionMessage,
  getAddressEncoder,
  getBase16Decoder,
  getBase58Decoder,
  getBase64Decoder,
  getProgramDerivedAddress,
  getTransactionEncoder,
  setTransactionMessageFeePayer,
  setTransactionMessageLifetimeUsingBlockhash,
} from '@solana/kit';
import { getWallets } from '@wallet-standard/app';
import {
  type ConnectedWallet,
  type Offer,
  type WalletChoice,
  WalletError,
  safeIcon,
  walletError,
} from './wallet.ts';

interface Account {
  readonly address: string;
  readonly chains: readonly string[];
}

/** The features of the Wallet Standard that this code uses. */
interface Features {
  readonly 'standard:connect'?: { connect(): Promise<{ accounts: readonly Account[] }> };
  readonly 'solana:signMessage'?: {
    signMessage(input: {
      account: Account;
      message: Uint8Array;
    }): Promise<readonly { readonly signature: Uint8Array }[]>;
  };
  readonly 'solana:signTransaction'?: {
    signTransaction(input: {
      account: Account;
      chain: string;
      transaction: Uint8Array;
    }): Promise<readonly { readonly signedTransaction: Uint8Array }[]>;
  };
}

type Wallet = ReturnType<ReturnType<typeof getWallets>['get']>[number];

/** Reports the wallets now and whenever one is added. Returns a function that stops it. */
export function watchSolanaWallets(report: (wallets: readonly WalletChoice[]) => void): () => void {
  const wallets = getWallets();
  const update = (): void =>
    report(
      wallets
        .get()
        .filter(isUsable)
        .map((wallet) => ({
          id: `solana:${wallet.name}`,
          name: wallet.name,
          icon: safeIcon(wallet.icon),
          rail: 'solana',
          connect: () => connect(wallet),
        })),
    );
  update();
  const stops = [wallets.on('register', update), wallets.on('unregister', update)];
  return () => stops.forEach((stop) => stop());
}

function isUsable({ features }: Wallet): boolean {
  return (
    features['standard:connect'] !== undefined &&
    features['solana:signMessage'] !== undefined &&
    features['solana:signTransaction'] !== undefined
  );
}

async function connect(wallet: Wallet): Promise<ConnectedWallet> {
  const features: Features = wallet.features;
  const connected = await rethrown(() => features['standard:connect']?.connect());
  const account = connected?.accounts.find(({ chains }) =>
    chains.some((one) => one.startsWith('solana:')),
  );
  if (account === undefined) {
    throw new WalletError('The wallet returned no Solana account. Unlock it and try again.');
  }
  return {
    name: wallet.name,
    rail: 'solana',
    address: account.address,
    signText: async (text) => {
      const message = new TextEncoder().encode(text);
      const [signed] =
        (await rethrown(() => features['solana:signMessage']?.signMessage({ account, message }))) ??
        [];
      if (signed === undefined) throw new WalletError(NOT_SIGNED);
      return getBase58Decoder().decode(signed.signature);
    },
    signPayment: async (offer, units) => {
      const transaction = await transferOf(addressOf(account.address), offer, units);
      const chain = account.chains.find((one) => one.startsWith('solana:')) ?? 'solana:mainnet';
      const [signed] =
        (await rethrown(() =>
          features['solana:signTransaction']?.signTransaction({ account, chain, transaction }),
        )) ?? [];
      if (signed === undefined) throw new WalletError(NOT_SIGNED);
      return { transaction: getBase64Decoder().decode(signed.signedTransaction) };
    },
  };
}

const NOT_SIGNED = 'The wallet returned no signature. Try again.';

/** Converts errors of the wallet to `WalletError`. */
async function rethrown<T>(work: () => Promise<T> | undefined): Promise<T | undefined> {
  try {
    return await work();
  } catch (error) {
    throw walletError(error);
  }
}

const TOKEN_PROGRAM = addressOf('TokenkegQfeZyiNwAJbNbGKPFXCWuBvf9Ss623VQ5DA');
const ASSOCIATED_PROGRAM = addressOf('ATokenGPvbdGVxr1b2hvZbsiqW5xWH25efTNsLJA8knL');
const COMPUTE_PROGRAM = addressOf('ComputeBudget111111111111111111111111111111');
const MEMO_PROGRAM = addressOf('MemoSq4gqABAXKb96qnH8TysNcWxMyWCqXgDLGmfcHr');
/** Values of the x402 scheme `exact`. */
const COMPUTE_UNITS = 20_000;
const MICRO_LAMPORTS = 1n;
const DECIMALS = 6;
const MEMO_BYTES = 16;

/** The transaction that the wallet signs, with the service as fee payer. */
async function transferOf(owner: Address, offer: Offer, units: bigint): Promise<Uint8Array> {
  const { feePayer, recentBlockhash, lastValidBlockHeight = '0' } = offer.extra;
  if (feePayer === undefined || recentBlockhash === undefined) {
    throw new WalletError('The service has no recent Solana blockhash. Try again in a moment.');
  }
  const mint = addressOf(offer.asset);
  const [source, destination] = await Promise.all([
    tokenAccountOf(owner, mint),
    tokenAccountOf(addressOf(offer.payTo), mint),
  ]);
  const instructions: Instruction[] = [
    {
      programAddress: COMPUTE_PROGRAM,
      accounts: [],
      data: bytes(5, (view) => {
        view.setUint8(0, 2);
        view.setUint32(1, COMPUTE_UNITS, true);
      }),
    },
    {
      programAddress: COMPUTE_PROGRAM,
      accounts: [],
      data: bytes(9, (view) => {
        view.setUint8(0, 3);
        view.setBigUint64(1, MICRO_LAMPORTS, true);
      }),
    },
    {
      programAddress: TOKEN_PROGRAM,
      accounts: [
        { address: source, role: AccountRole.WRITABLE },
        { address: mint, role: AccountRole.READONLY },
        { address: destination, role: AccountRole.WRITABLE },
        { address: owner, role: AccountRole.READONLY_SIGNER },
      ],
      data: bytes(10, (view) => {
        view.setUint8(0, 12);
        view.setBigUint64(1, units, true);
        view.setUint8(9, DECIMALS);
      }),
    },
    { programAddress: MEMO_PROGRAM, accounts: [], data: memo(offer.extra['memo']) },
  ];
  const message = appendTransactionMessageInstructions(
    instructions,
    setTransactionMessageLifetimeUsingBlockhash(
      {
        blockhash: recentBlockhash as Blockhash, // base58 of the service's node
        lastValidBlockHeight: BigInt(lastValidBlockHeight),
      },
      setTransactionMessageFeePayer(addressOf(feePayer), createTransactionMessage({ version: 0 })),
    ),
  );
  return new Uint8Array(getTransactionEncoder().encode(compileTransaction(message)));
}

async function tokenAccountOf(owner: Address, mint: Address): Promise<Address> {
  const encoder = getAddressEncoder();
  const seeds = [owner, TOKEN_PROGRAM, mint].map((one) => encoder.encode(one));
  const [found] = await getProgramDerivedAddress({ programAddress: ASSOCIATED_PROGRAM, seeds });
  return found;
}

/** Makes two payments of the same amount different. */
function memo(given: string | undefined): Uint8Array {
  const random = crypto.getRandomValues(new Uint8Array(MEMO_BYTES));
  return new TextEncoder().encode(given ?? getBase16Decoder().decode(random));
}

function bytes(length: number, fill: (view: DataView) => void): Uint8Array {
  const array = new Uint8Array(length);
  fill(new DataView(array.buffer));
  return array;
}
