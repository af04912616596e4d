import { link } from "./state";

interface Properties {
  label: string;
  /** Key of the address. */
  name: string;
  tabs: readonly (readonly [string, string])[];
  chosen: string;
  reset?: Record<string, null>;
}

export function Tabs({ label, name, tabs, chosen, reset = {} }: Properties) {
  return (
    <nav class="tabs" aria-label={label}>
      {tabs.map(([key, title]) => (
        <a key={key} href={link({ ...reset, [name]: key })} {...(key === chosen ? { "aria-current": "page" as const } : {})}>
          {title}
        </a>
      ))}
    </nav>
  );
}
