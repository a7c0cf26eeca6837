/** The wallets of this browser, one to be chosen. */
import { useSignal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { RAILS, type Rail } from '../page-facts.ts';
import type { WalletChoice } from '../wallets/wallet.ts';

export const RAIL_NAMES: Readonly<Record<Rail, string>> = { base: 'Base', solana: 'Solana' };

interface WalletListProps {
  readonly isBusy: boolean;
  readonly choose: (choice: WalletChoice) => void;
  /** Default: every rail. */
  readonly rail?: Rail | undefined;
}

export function WalletList({ isBusy, choose, rail }: WalletListProps) {
  const { list, isLooking } = useWallets();
  const shown = list.filter((one) => rail === undefined || one.rail === rail);
  const kinds = (rail === undefined ? RAILS : [rail]).map((one) => RAIL_NAMES[one]).join(' or ');
  if (shown.length === 0) {
    return (
      <p class="notice" role="status">
        {isLooking
          ? 'Looking for wallets…'
          : `No wallet of ${kinds} was found in this browser. Install one, or open this page in the browser of your wallet.`}
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

/** Wallets of this browser on the rails of the service, as they announce themselves. */
function useWallets(): {
  readonly list: readonly WalletChoice[];
  readonly isLooking: boolean;
} {
  const found = useSignal<Readonly<Record<string, readonly WalletChoice[]>>>({});
  const isLooking = useSignal(true);
  useEffect(() => {
    const stops: (() => void)[] = [];
    let isOver = false;
    const tell = (rail: string) => (wallets: readonly WalletChoice[]) => {
      found.value = { ...found.value, [rail]: wallets };
    };
    const look = async (): Promise<void> => {
      for (const rail of RAILS) {
        const watch =
          rail === 'base'
            ? (await import('../wallets/evm.ts')).watchEvmWallets
            : (await import('../wallets/solana.ts')).watchSolanaWallets;
        if (!isOver) stops.push(watch(tell(rail)));
      }
      isLooking.value = false;
    };
    look().catch(() => {
      // The code of the wallets did not come; the list says that there are none.
      isLooking.value = false;
    });
    return () => {
      isOver = true;
      for (const stop of stops) stop();
    };
  }, []);
  return { list: Object.values(found.value).flat(), isLooking: isLooking.value };
}
