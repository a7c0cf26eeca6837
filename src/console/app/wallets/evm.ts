/**
 * Wallets of Base, which announce themselves by EIP-6963. Payments are EIP-3009 authorizations: the
 * wallet signs, the service sends, and nothing is asked of any other server.
 */
import { createStore } from 'mipd';
import { getAddress } from 'viem/utils';
import { usdText } from '../format.ts';
import {
  type ConnectedWallet,
  type Offer,
  type WalletChoice,
  WalletError,
  safeIcon,
  usdOfUnits,
  walletError,
} from './wallet.ts';

interface Provider {
  request(call: { method: string; params?: unknown }): Promise<unknown>;
}

/** The wallet does not know the chain. */
const UNKNOWN_CHAIN = 4902;
/** What a wallet needs to add a chain that it does not know. */
const KNOWN_CHAINS: Readonly<Record<number, object>> = {
  8453: {
    chainName: 'Base',
    nativeCurrency: { name: 'Ether', symbol: 'ETH', decimals: 18 },
    rpcUrls: ['https://mainnet.base.org'],
    blockExplorerUrls: ['https://basescan.org'],
  },
  84532: {
    chainName: 'Base Sepolia',
    nativeCurrency: { name: 'Ether', symbol: 'ETH', decimals: 18 },
    rpcUrls: ['https://sepolia.base.org'],
    blockExplorerUrls: ['https://sepolia.basescan.org'],
  },
};

/** Tells of the wallets that are there now and whenever one joins; the answer ends it. */
export function watchEvmWallets(tell: (wallets: readonly WalletChoice[]) => void): () => void {
  const store = createStore();
  const say = (): void =>
    tell(
      store.getProviders().map(({ info, provider }) => ({
        id: `evm:${info.uuid}`,
        name: info.name,
        icon: safeIcon(info.icon),
        rail: 'base',
        connect: () => connect(info.name, provider),
      })),
    );
  say();
  const stop = store.subscribe(say);
  return () => {
    stop();
    store.destroy();
  };
}

async function connect(name: string, provider: Provider): Promise<ConnectedWallet> {
  const accounts = await ask<readonly string[]>(provider, 'eth_requestAccounts');
  const [first] = accounts;
  if (first === undefined)
    throw new WalletError('The wallet gave no account. Unlock it and try again.');
  const address = getAddress(first);
  return {
    name,
    rail: 'base',
    address,
    signText: (text) => ask<string>(provider, 'personal_sign', [hexOf(text), address]),
    signPayment: (offer, units) => signPayment(provider, address, offer, units),
  };
}

async function ask<T>(provider: Provider, method: string, params?: unknown): Promise<T> {
  try {
    const call = params === undefined ? { method } : { method, params };
    return (await provider.request(call)) as T; // by EIP-1193, of that method
  } catch (error) {
    throw walletError(error);
  }
}

const AUTHORIZATION = [
  { name: 'from', type: 'address' },
  { name: 'to', type: 'address' },
  { name: 'value', type: 'uint256' },
  { name: 'validAfter', type: 'uint256' },
  { name: 'validBefore', type: 'uint256' },
  { name: 'nonce', type: 'bytes32' },
];
const DOMAIN = [
  { name: 'name', type: 'string' },
  { name: 'version', type: 'string' },
  { name: 'chainId', type: 'uint256' },
  { name: 'verifyingContract', type: 'address' },
];
const NONCE_BYTES = 32;

async function signPayment(
  provider: Provider,
  from: string,
  offer: Offer,
  units: bigint,
): Promise<Readonly<Record<string, unknown>>> {
  const chainId = Number(offer.network.split(':')[1]);
  await switchChain(provider, chainId);
  await checkFunds(provider, from, offer, units);
  const authorization = {
    from,
    to: getAddress(offer.payTo),
    value: String(units),
    validAfter: '0',
    validBefore: String(Math.floor(Date.now() / 1_000) + offer.maxTimeoutSeconds),
    nonce: hexOf(crypto.getRandomValues(new Uint8Array(NONCE_BYTES))),
  };
  const typedData = {
    types: { EIP712Domain: DOMAIN, TransferWithAuthorization: AUTHORIZATION },
    primaryType: 'TransferWithAuthorization',
    domain: {
      name: offer.extra['name'],
      version: offer.extra['version'],
      chainId,
      verifyingContract: getAddress(offer.asset),
    },
    message: authorization,
  };
  const params = [from, JSON.stringify(typedData)];
  const signature = await ask<string>(provider, 'eth_signTypedData_v4', params);
  return { authorization, signature };
}

/** A wallet signs for the chain that it shows, so it is asked to show the right one. */
async function switchChain(provider: Provider, chainId: number): Promise<void> {
  const wanted = `0x${chainId.toString(16)}`;
  const now = await ask<string>(provider, 'eth_chainId');
  if (Number(now) === chainId) return;
  const { chainName = `the chain ${chainId}` } = (KNOWN_CHAINS[chainId] ?? {}) as {
    chainName?: string;
  };
  try {
    await provider.request({ method: 'wallet_switchEthereumChain', params: [{ chainId: wanted }] });
  } catch (error) {
    const known = KNOWN_CHAINS[chainId];
    const { code } = error as { code?: unknown }; // EIP-1193
    if (code === UNKNOWN_CHAIN && known !== undefined) {
      await ask(provider, 'wallet_addEthereumChain', [{ chainId: wanted, ...known }]);
    } else {
      throw new WalletError(
        `Your wallet is on another chain. Switch it to ${chainName} and try again.`,
      );
    }
  }
  if (Number(await ask<string>(provider, 'eth_chainId')) !== chainId) {
    throw new WalletError(
      `Your wallet is on another chain. Switch it to ${chainName} and try again.`,
    );
  }
}

const BALANCE_OF = '0x70a08231';

/** Says that there is too little before anything is signed, where the wallet can tell. */
async function checkFunds(
  provider: Provider,
  from: string,
  { asset }: Offer,
  units: bigint,
): Promise<void> {
  let held: bigint;
  try {
    const data = BALANCE_OF + from.slice(2).toLowerCase().padStart(64, '0');
    const answer = await provider.request({
      method: 'eth_call',
      params: [{ to: asset, data }, 'latest'],
    });
    held = BigInt(String(answer));
  } catch {
    // Not every wallet answers it; the service looks before it sends anything.
    return;
  }
  if (held >= units) return;
  throw new WalletError(
    `This wallet has ${usdText(usdOfUnits(held))} in USDC on Base, which is less than ${usdText(usdOfUnits(units))}. Nothing was signed.`,
  );
}

function hexOf(value: string | Uint8Array): string {
  const bytes = typeof value === 'string' ? new TextEncoder().encode(value) : value;
  return `0x${Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('')}`;
}
