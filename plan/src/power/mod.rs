//! From dirty bytes to energy, batteries and times (Viyojit, sections 2.2 and 8).
