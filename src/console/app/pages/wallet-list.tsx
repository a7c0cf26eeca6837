/** A list of the wallets in this browser. */
import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { RAILS, RAIL_NAMES, type Rail } from '../page-facts.ts';
import type { WalletChoice } from '../wallets/wallet.ts';

interface WalletListProps {
  readonly isBusy: boolean;
  readonly choose: (choice: WalletChoice) => void;
  /** Default: all rails. */
  readonly rail?: Rail | undefined;
}

export function WalletList({ isBusy, choose, rail }: WalletListProps) {
  const { list, isSearching } = useWallets();
  const shown = list.filter((one) => rail === undefined || one.rail === rail);
  const kinds = (rail === undefined ? RAILS : [rail]).map((one) => RAIL_NAMES[one]).join(' or ');
  if (shown.length === 0) {
    return (
      <p class="notice" role="status">
        {isSearching
          ? 'Searching for wallets…'
          : `No ${kinds} wallet was found in this browser. Install one, or open this page in the browser of your wallet app.`}
      </p>
    );
  }
  return (
    <ul class="wallets">
      {shown.map((choice) => (
        <li key={choice.id}>
          <button type="button" disabled={isBusy} onClick={() => choose(choice)}>
            {choice.icon === undefined ? (
              <span class="no-icon" />
            ) : (
              <img src={choice.icon} alt="" />
            )}
            <span>{choice.name}</span>
            <span class="soft">{RAIL_NAMES[choice.rail]}</span>
          </button>
        </li>
      ))}
    </ul>
  );
}

/** The wallets of this browser for the rails of the service, updated when one announces itself. */
function useWallets(): {
  readonly list: readonly WalletChoice[];
  readonly isSearching: boolean;
} {
  const found = useSignal<Readonly<Record<string, readonly WalletChoice[]>>>({});
  const isSearching = useSignal(true);
  useEffect(() => {
    const stops: (() => void)[] = [];
    let isOver = false;
    const search = async (): Promise<void> => {
      for (const rail of RAILS) {
        const watch =
          rail === 'base'
            ? (await import('../wallets/evm.ts')).watchEvmWallets
            : (await import('../wallets/solana.ts')).watchSolanaWallets;
        if (isOver) return;
        stops.push(watch((wallets) => (found.value = { ...found.value, [rail]: wallets })));
      }
    };
    search()
      .catch(() => undefined) // the wallet code did not load, so the list stays empty
      .finally(() => (isSearching.value = false));
    return () => {
      isOver = true;
      for (const stop of stops) stop();
    };
  }, []);
  return { list: Object.values(found.value).flat(), isSearching: isSearching.value };
}
