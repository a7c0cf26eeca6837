/** Tabs of a page, each with its own address. */
import { useEffect, useRef } from 'preact/hooks';

interface TabsProps {
  readonly label: string;
  readonly tabs: readonly (readonly [address: string, title: string])[];
  readonly at: string;
}

export function Tabs({ label, tabs, at }: TabsProps) {
  const nav = useRef<HTMLElement>(null);
  useEffect(() => {
    // On a phone, the tabs scroll; keeps the current one visible.
    const shown = nav.current?.querySelector('[aria-current]');
    shown?.scrollIntoView({ block: 'nearest', inline: 'center' });
  }, [at]);
  return (
    <nav class="tabs" ref={nav} aria-label={label}>
      {tabs.map(([address, title]) => (
        <a key={address} href={address} aria-current={at === address ? 'page' : undefined}>
          {title}
        </a>
      ))}
    </nav>
  );
}
